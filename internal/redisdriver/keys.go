package redisdriver

import (
	"strings"
	"sync"
)

const slots = 16384

// FenceKey is the name of the fencing counter of a lock key. No lock key begins with
// "locker:", as all auxiliary keys and channels do.
func FenceKey(key string) string { return AuxKey("locker:fence:", key) }

// AuxKey names a key that belongs to key and lies in its slot. Different keys
// get different names.
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

// hashTag is the part of key that Redis Cluster hashes: what is between the first
// { and the first } after it, unless that is nothing; else all.
func hashTag(key string) string {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			return key[i+1 : i+1+j]
		}
	}
	return key
}

// Slot is the cluster slot of key.
func Slot(key string) int { return int(crc16(hashTag(key))) % slots }

// SlotTag is a hash tag in the slot of key, the same for all keys of the slot.
func SlotTag(key string) string { return slotTags()[Slot(key)] }

// slotTags has a short name for each slot. Made on the first use: keys that
// need it are rare.
var slotTags = sync.OnceValue(func() *[slots]string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	var tags [slots]string
	var b [4]byte
	for missing, n := slots, 0; missing > 0; n++ {
		v := n
		for i := range b {
			b[i] = digits[v%len(digits)]
			v /= len(digits)
		}
		if s := crc16(string(b[:])) % slots; tags[s] == "" {
			tags[s] = string(b[:])
			missing--
		}
	}
	return &tags
})

// crc16 is CRC-16/XMODEM, which Redis Cluster uses.
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
