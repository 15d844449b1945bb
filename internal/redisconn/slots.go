package redisconn

import (
	"strings"
	"sync"
)

// Slots is how many slots a cluster has.
const Slots = 16384

// AuxKey names a key that belongs to key and lies in its slot. Different keys have different
// names.
func AuxKey(prefix, key string) string {
	tag := hashTag(key)
	if strings.Contains(tag, "}") {
		// No hash tag can hold it ("}x", "{}x"): any other name of the slot does.
		tag = SlotTag(key)
	}
	if tag == key {
		return prefix + "{" + tag + "}"
	}
	return prefix + "{" + tag + "}:" + key
}

// hashTag returns the part of key that Redis Cluster hashes: what is between the first
// { and the first } after it, unless that is nothing; else all.
func hashTag(key string) string {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			return key[i+1 : i+1+j]
		}
	}
	return key
}

// Slot returns the cluster slot of key.
func Slot(key string) int { return int(crc16(hashTag(key))) % Slots }

// SlotTag returns a hash tag in the slot of key, the same for all keys of the slot.
func SlotTag(key string) string { return slotTags()[Slot(key)] }

// slotTags returns a short name for each slot. The first call makes them, which takes a few milliseconds of a
// processor. The CRC of a name is the XOR of its digits' CRCs, each digit alone in its place among zero bytes.
var slotTags = sync.OnceValue(func() *[Slots]string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	var b [4]byte
	var part [len(b)][len(digits)]uint16 // of the CRC, by place and digit
	for place := range b {
		for d := range digits {
			b[place] = digits[d]
			part[place][d] = crc16(string(b[:]))
		}
		b[place] = 0
	}
	var tags [Slots]string
	for missing, n := Slots, 0; missing > 0; n++ {
		crc, v := uint16(0), n
		for place := range b {
			d := v % len(digits)
			b[place], crc = digits[d], crc^part[place][d]
			v /= len(digits)
		}
		if s := crc % Slots; tags[s] == "" {
			tags[s] = string(b[:])
			missing--
		}
	}
	return &tags
})

// crc16 returns the CRC-16/XMODEM of s, which Redis Cluster uses.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
