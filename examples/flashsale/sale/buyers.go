package sale

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// crowd is the buyers of one sale and what became of them.
type crowd struct {
	buyers, concurrency int
	shops               []string // URLs

	sold, refused, failed atomic.Int64

	mu      sync.Mutex
	waits   []time.Duration // for the lock, of those served
	failure error           // the first
}

// buy sends all buyers through the shops, and returns when they are through or
// ctx ends.
func (c *crowd) buy(ctx context.Context) {
	client := &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: c.concurrency},
		Timeout:   time.Minute,
	}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(c.concurrency, c.buyers) {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1))
				if n > c.buyers {
					return
				}
				c.visit(ctx, client, n)
			}
		})
	}
	wg.Wait()
}

// visit is buyer n's, the same shop and the same bank for every strategy.
func (c *crowd) visit(ctx context.Context, client *http.Client, n int) {
	random := rand.New(rand.NewPCG(42, uint64(n)))
	shop := c.shops[random.IntN(len(c.shops))]
	payment := 2*time.Millisecond + time.Duration(random.Int64N(int64(6*time.Millisecond)))
	status, wait, err := place(ctx, client, fmt.Sprintf("%s/buy?payment=%v", shop, payment))
	switch {
	case ctx.Err() != nil: // interrupted
		return
	case err != nil:
		c.failed.Add(1)
	case status == http.StatusCreated:
		c.sold.Add(1)
	default:
		c.refused.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.waits = append(c.waits, wait)
	} else if c.failure == nil {
		c.failure = err
	}
}

// place orders one unit. A status without an error is 201 or 410.
func place(ctx context.Context, client *http.Client, url string) (status int, wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, err
	}
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusGone {
		return 0, 0, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	wait, err = time.ParseDuration(resp.Header.Get(waitHeader))
	return resp.StatusCode, wait, err
}
