package redisdriver

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

// FuzzReplies takes whatever go-redis may make of what a server says for the reply
// of a script: nothing but what a script says for a grant is one.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("\x05\x02\x00\x02\x00\x03"))         // granted
	f.Add([]byte("\x05\x03\x00\x01\x00\x03\x00\x02")) // held
	f.Add([]byte("\x05\x02\x00\x00\x01\x03set"))      // no lock
	f.Add([]byte("\x05\x02\x00\x02\x01\x011"))        // a token that is no number
	f.Add([]byte("\x00\x02"))
	f.Add([]byte("\x06\x01\x00\x02\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		reply := (&maker{data}).value(3)
		r, _ := reply.([]any)
		granted := len(r) >= 2 && r[0] == int64(1)
		if granted {
			_, granted = r[1].(int64)
		}
		a, err := answerOf(reply, 1)
		require.Equal(t, granted, a.Granted)
		var refined *driver.StoreError
		switch {
		case errors.Is(err, locker.ErrConflict):
			require.Equal(t, int64(-1), r[0])
		case err != nil:
			require.ErrorAs(t, err, &refined)
			require.True(t, refined.Permanent)
			require.Zero(t, a)
		}
		switch err := verdict(reply); {
		case err == nil:
			require.Equal(t, int64(1), reply)
		case errors.Is(err, locker.ErrLost):
			require.Equal(t, int64(0), reply)
		default:
			require.ErrorAs(t, err, &refined)
		}
	})
}

func TestGrants(t *testing.T) {
	for _, c := range []struct {
		reply  []any
		tokens int
		want   driver.Answer
	}{
		{[]any{int64(1), int64(7)}, 0, driver.Answer{Granted: true, Token: 7, Tokens: 1}},
		{[]any{int64(1), int64(7)}, 16, driver.Answer{Granted: true, Token: 7, Tokens: 16}},
		{[]any{int64(1), int64(7), int64(1)}, 16, driver.Answer{Granted: true, Token: 7, Tokens: 1}},
		{[]any{int64(1), int64(7), "x"}, 16, driver.Answer{Granted: true, Token: 7}},
		{[]any{int64(1), int64(0)}, 16, driver.Answer{Granted: true}},
	} {
		a, err := answerOf(c.reply, c.tokens)
		require.NoError(t, err)
		require.Equal(t, c.want, a, "%v of %d", c.reply, c.tokens)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		reply []any
		want  driver.Answer
	}{
		{[]any{int64(0), int64(1500), int64(0), "ann"}, driver.Answer{Remaining: 1501 * time.Millisecond, Owner: "ann"}},
		{[]any{int64(0), int64(1500), int64(1)}, driver.Answer{Remaining: 1501 * time.Millisecond, NoWakeUp: true}},
		{[]any{int64(0), int64(0), int64(1)}, driver.Answer{Remaining: time.Millisecond, NoWakeUp: true}},
		{[]any{int64(0), int64(-1), int64(1)}, driver.Answer{NoWakeUp: true}},
		{[]any{int64(0), int64(-2), int64(0), ""}, driver.Answer{}},
		{[]any{int64(0), int64(math.MaxInt64), int64(0), ""}, driver.Answer{}},
	} {
		a, err := answerOf(c.reply, 1)
		require.NoError(t, err)
		require.Equal(t, c.want, a, "%v", c.reply)
	}
}

// maker makes values of bytes.
type maker struct{ data []byte }

func (m *maker) byte() byte {
	if len(m.data) == 0 {
		return 0
	}
	b := m.data[0]
	m.data = m.data[1:]
	return b
}

func (m *maker) value(depth int) any {
	switch kind := m.byte() % 8; {
	case kind == 0:
		if b := m.byte(); b < 128 {
			return int64(b) - 1
		}
		var eight [8]byte
		m.data = m.data[copy(eight[:], m.data):]
		return int64(binary.BigEndian.Uint64(eight[:]))
	case kind == 1:
		n := min(int(m.byte()), len(m.data))
		s := string(m.data[:n])
		m.data = m.data[n:]
		return s
	case kind == 2:
		return nil
	case kind == 3:
		return m.byte()%2 == 1
	case kind == 4:
		return float64(m.byte())
	case kind == 5 && depth > 0:
		all := make([]any, m.byte()%8)
		for i := range all {
			all[i] = m.value(depth - 1)
		}
		return all
	case kind == 6 && depth > 0:
		return map[any]any{m.value(0): m.value(depth - 1)}
	}
	return errors.New("ERR")
}
