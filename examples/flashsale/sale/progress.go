package sale

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// watch shows how the sale goes until the returned func is called: in one line
// that changes on a terminal, in a line a second elsewhere.
func watch(w io.Writer, name string, c *crowd) (stop func()) {
	terminal := isTerminal(w)
	every, begin, end := time.Second, "", "\n"
	if terminal {
		every, begin, end = 100*time.Millisecond, "\r\x1b[K", ""
	}
	tell := func() {
		sold, refused, failed := c.sold.Load(), c.refused.Load(), c.failed.Load()
		fmt.Fprintf(w, "%s%s: %s open, %d of %d buyers through, %d sold%s",
			begin, name, plural(len(c.shops), "shop"), sold+refused+failed, c.buyers, sold, end)
	}
	tell()

	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				tell()
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		if terminal {
			fmt.Fprint(w, begin)
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
