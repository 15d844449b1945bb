package main

import (
	"context"
	"fmt"
	"runtime"
)

// hold takes the locks that the job wants held, and counts what they cost here.
func (c *Child) hold() error {
	if c.job.Held == 0 {
		return nil
	}
	l := c.clients[0]
	if err := pair(l, c.job.Name+":warm-up:held"); err != nil {
		return err
	}
	goroutines, bytes := usage()
	c.held = make([]hold, c.job.Held)
	if err := each(len(c.held), 32, func(i int) (err error) {
		c.held[i], err = l.lock(context.Background(), fmt.Sprintf("%s:held:%d", c.job.Name, i), c.job.HeldTTL)
		return err
	}); err != nil {
		return fmt.Errorf("taking the locks to be held: %w", err)
	}
	goroutinesThen, bytesThen := usage()
	n := float64(len(c.held))
	c.result.Goroutines, c.result.Bytes = float64(goroutinesThen-goroutines)/n, float64(bytesThen-bytes)/n
	return nil
}

func usage() (goroutines int, bytes int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc + m.StackInuse)
}
