// Package idle counts what runs, so that its owner can wait until nothing does.
package idle

// Count counts what runs. Its owner's mutex guards it. The zero value is ready.
type Count struct {
	n    int
	idle chan struct{} // closed when n is 0; made by Done
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Add counts more that runs, or less if more is negative.
func (c *Count) Add(more int) {
	if c.n += more; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Done returns a channel that is closed when nothing runs any more; at once if nothing does now.
func (c *Count) Done() <-chan struct{} {
	switch {
	case c.n == 0:
		return closed
	case c.idle == nil:
		c.idle = make(chan struct{})
	}
	return c.idle
}

// Awaited reports whether Done was called and something runs since.
func (c *Count) Awaited() bool { return c.idle != nil }
