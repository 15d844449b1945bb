package driver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A receiver keeps many signals, and a stranger may send long ones: what is longer than any that a Locker sends is no signal.
func TestParseSignal(t *testing.T) {
	const claim = "0194f2a4-58c1-8d7e-9b1a-5f3c2e1d0a9b:7"
	longest := Signal{Kind: SignalBroken, Claim: claim + MetadataMark + strings.Repeat("m", 1<<10), Key: strings.Repeat(" k", 16<<10)}
	got, ok := ParseSignal(longest.String())
	require.True(t, ok, "a prefix and a key of 16 KiB each")
	require.Equal(t, longest, got)
	for _, s := range []string{"", "b", "b ", "b " + claim, "bb " + claim + " k", " " + claim + " k", longest.String() + strings.Repeat("k", 64<<10)} {
		_, ok := ParseSignal(s)
		require.False(t, ok, "%.80q", s)
	}
}

func TestLockerOf(t *testing.T) {
	const uuid = "0194f2a4-58c1-8d7e-9b1a-5f3c2e1d0a9b"
	for id, want := range map[string]string{
		uuid + ":1":               uuid,
		uuid + ":12?host=a&pid=1": uuid,
		uuid:                      "",
		uuid + ":":                "",
		uuid + ":1:2":             "",
		"a name":                  "",
		"":                        "",
	} {
		got, ok := LockerOf(id)
		require.Equal(t, want, got, id)
		require.Equal(t, want != "", ok, id)
	}
}
