//go:build !linux

package soak

import "time"

func sharedClock() instant { return instant(time.Now().UnixNano()) }
