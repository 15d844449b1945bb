package redisconn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

var hostile = []string{
	"a", "{", "}", "{}", "{}x", "}x", "x}", "a{b", "a}b", "a{b}c", "{a}", "{a}{b}", "{{a}}", "a{}b{c}", "}{", "}a{b}",
	"{\x00}", "\n", "key with spaces", "ключ", "🔒{🔑}", strings.Repeat("k", 16<<10), "{" + strings.Repeat("}", 40),
}

// CLUSTER KEYSLOT works on any server that was started for a cluster.
func TestSlotsAsRedisHasThem(t *testing.T) {
	rdb := redistest.Start(t, redistest.WithConfig("--cluster-enabled", "yes")).Client(t)
	ctx := context.Background()
	keys := hostile
	alphabet := []rune("ab{}:é\x00")
	for range 300 {
		var b strings.Builder
		for range 1 + rand.IntN(9) {
			b.WriteRune(alphabet[rand.IntN(len(alphabet))])
		}
		keys = append(keys, b.String())
	}
	for _, key := range keys {
		want := rdb.ClusterKeySlot(ctx, key)
		require.NoError(t, want.Err())
		require.EqualValues(t, want.Val(), Slot(key), "slot of %.60q", key)
		for _, aux := range []string{AuxKey("p:", key), AuxKey("locker:channel:", key)} {
			got := rdb.ClusterKeySlot(ctx, aux)
			require.NoError(t, got.Err())
			require.Equal(t, want.Val(), got.Val(), "%.60q must lie in the slot of %.60q", aux, key)
		}
	}
}

func TestAuxKeysAreDistinct(t *testing.T) {
	seen := make(map[string]string)
	alphabet := "a{}:"
	var all []string
	var grow func(string, int)
	grow = func(s string, n int) {
		if s != "" {
			all = append(all, s)
		}
		if n == 0 {
			return
		}
		for _, c := range alphabet {
			grow(s+string(c), n-1)
		}
	}
	grow("", 6)
	for _, key := range all {
		aux := AuxKey("p:", key)
		if other, ok := seen[aux]; ok {
			t.Fatalf("%q and %q share the fencing counter %q", key, other, aux)
		}
		seen[aux] = key
	}
	require.Len(t, seen, len(all))
}

func TestSlotTagsCoverAllSlots(t *testing.T) {
	for slot, tag := range slotTags() {
		require.Equal(t, slot, Slot(fmt.Sprintf("x{%s}y", tag)))
	}
}

// The names are in keys of stores, which versions share: they stay.
func TestSlotTagsStay(t *testing.T) {
	sum := sha256.Sum256([]byte(strings.Join(slotTags()[:], " ")))
	require.Equal(t, "b6781bd3b8d7fc64a3b8ca8382f40f1816f74887add421208c9e6d922ce008fd", hex.EncodeToString(sum[:]))
}

// FuzzAuxKeySlot compares slots with Redis's own CLUSTER KEYSLOT.
func FuzzAuxKeySlot(f *testing.F) {
	for _, k := range hostile[:len(hostile)-2] {
		f.Add(k)
	}
	rdb := redistest.Start(f, redistest.WithConfig("--cluster-enabled", "yes")).Client(f)
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" {
			return
		}
		slot := Slot(key)
		for _, k := range []string{key, AuxKey("p:", key), "x{" + SlotTag(key) + "}y"} {
			got, err := rdb.ClusterKeySlot(context.Background(), k).Result()
			require.NoError(t, err)
			require.EqualValues(t, slot, got, "%q lies in slot %d, its companion %q elsewhere", key, slot, k)
		}
	})
}
