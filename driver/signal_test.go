package driver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
