package fencetest

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/distlock/locker/fence"
)

func (s *subject) writes(key string, token int64, value string, want error) error {
	if err := expect(s.resource.Write(s.ctx, key, token, value), want); err != nil {
		return fmt.Errorf("Write(%d, %q): %w", token, value, err)
	}
	return nil
}

func (s *subject) reads(key, want string) error {
	if value, err := s.resource.Read(s.ctx, key); err != nil || value != want {
		return fmt.Errorf("Read: want %q, got %q, %w", want, value, orNil(err))
	}
	return nil
}

func lateWrite(s *subject) error {
	return errors.Join(
		s.writes(s.base, now, "first", nil),
		s.writes(s.base, now+1, "second", nil),
		s.writes(s.base, now, "late", fence.ErrStale), s.reads(s.base, "second"),
		s.writes(s.base, 0, "unset", fence.ErrInvalid), s.reads(s.base, "second"),
		s.writes(s.base, now+1, "again", nil), s.reads(s.base, "again"),
	)
}

func writeAfterAdmit(s *subject) error {
	return errors.Join(
		s.writes(s.base, now, "first", nil),
		s.admits(s.base, step{now + 1, nil}), // a later owner is about to read
		s.writes(s.base, now, "late", fence.ErrStale), s.reads(s.base, "first"),
		s.writes(s.base, now+2, "third", nil),
		s.admits(s.base, step{now + 1, fence.ErrStale}), s.reads(s.base, "third"),
	)
}

// writesAtTheSameTime: the value is that of the greatest token, whatever the order.
func writesAtTheSameTime(s *subject) error {
	return s.race(func(_ int, token int64) error {
		if err := s.resource.Write(s.ctx, s.base, token, strconv.FormatInt(token, 10)); err != nil && !errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("Write(%d): %w", token, err)
		}
		return nil
	}, func(_ int, greatest int64) error {
		return s.reads(s.base, strconv.FormatInt(greatest, 10))
	})
}
