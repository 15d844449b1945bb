// Fencing shows a lost update that no lock with a TTL can prevent, and the fencing token
// that prevents it.
//
//	go run .
//	go run . -url hashreentrant+redis://localhost:6379
//
// Two workers sell units of one product. Each takes the lock, reads the stock, takes some
// time, and writes what it has read less what it has sold. The first worker is paused for
// longer than its lease. Meanwhile the second one has the lock and sells, and then the first
// one wakes up and writes what it has computed from the old stock.
//
// The story runs twice: with a table that takes every write, and with one whose transactions
// compare tokens. See stock.go for the two.
//
// The program exits with 0 if the first table has lost a sale and the second one has not.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/strategy"
)

const (
	product = "lamp"
	units   = 100
	ttl     = 300 * time.Millisecond
	pause   = 2 * ttl

	slowSells, quickSells = 30, 10
)

func main() { cli.Main("fencing", run) }

func run(ctx context.Context, p *cli.Program) error {
	url := p.String("url", "memory://fencing", "where the locks are, as for strategy.OpenURL")
	if err := p.Parse(); err != nil {
		return err
	}
	first, err := tell(ctx, p.Stdout, *url, "A table that takes every write", unchecked)
	if err != nil {
		return err
	}
	second, err := tell(ctx, p.Stdout, *url, "A table that compares tokens", fenced)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TABLE\tWRITES\tREFUSED\tSOLD\tSTOCK\tSHOULD BE\tVERDICT")
	first.row(w, "takes every write")
	second.row(w, "compares tokens")
	if err := w.Flush(); err != nil {
		return err
	}
	if first.right() || !second.right() {
		return errors.New("the story has not gone as it should")
	}
	return nil
}

// outcome has the figures of a story.
type outcome struct{ writes, refused, sold, stock int }

func (o outcome) right() bool { return o.stock == units-o.sold }

func (o outcome) row(w io.Writer, name string) {
	verdict := "right"
	if !o.right() {
		verdict = "a sale is lost"
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\n", name, o.writes, o.refused, o.sold, o.stock, units-o.sold, verdict)
}

// story is one telling, with a table and a way to use it.
type story struct {
	out   io.Writer
	began time.Time
	table stock
	access
	outcome
}

func tell(ctx context.Context, out io.Writer, url, title string, a access) (outcome, error) {
	table, err := newStock(ctx, product, units)
	if err != nil {
		return outcome{}, err
	}
	defer table.close()
	// Each worker has a Locker of its own, as a process of its own would have.
	slow, releaseSlow, err := strategy.OpenURL(ctx, url)
	if err != nil {
		return outcome{}, err
	}
	defer releaseSlow()
	quick, releaseQuick, err := strategy.OpenURL(ctx, url)
	if err != nil {
		return outcome{}, err
	}
	defer releaseQuick()

	fmt.Fprintf(out, "%s\n\n", title)
	s := &story{out: out, began: time.Now(), table: table, access: a}
	if err := s.run(ctx, slow, quick); err != nil {
		return outcome{}, err
	}
	s.stock, err = read(ctx, table.db, product)
	fmt.Fprintln(out)
	return s.outcome, err
}

func (s *story) say(who, format string, args ...any) {
	fmt.Fprintf(s.out, "  %4.1f s  %-6s %s\n", time.Since(s.began).Seconds(), who, fmt.Sprintf(format, args...))
}

// run plays the story. The two workers take turns in one goroutine, so that it goes the same
// way each time; nothing in it depends on that.
func (s *story) run(ctx context.Context, slow, quick locker.Locker) error {
	// A process that is paused renews nothing. A goroutine that sleeps is not a paused
	// process, so this lease is taken without renewal.
	lease, err := slow.Lock(ctx, product, locker.WithTTL(ttl), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	before, err := s.begin(ctx, "slow", lease)
	if err != nil {
		return err
	}
	if lease.Err() == nil {
		s.say("slow", "asks whether it still has the lock: yes. Then it is paused, for %v", pause)
	}

	woken := time.Now().Add(pause)
	if err := s.sell(ctx, "quick", quick, quickSells); err != nil {
		return err
	}
	if err := cli.Sleep(ctx, time.Until(woken)); err != nil {
		return err
	}

	s.say("slow", "wakes up and goes on with its write, as it has asked before the pause")
	err = s.finish(ctx, "slow", lease, before-slowSells)
	if unlocked := lease.Unlock(ctx); errors.Is(unlocked, locker.ErrLost) {
		s.say("slow", "learns from Unlock that the lease was lost")
	} else if unlocked != nil {
		return unlocked
	}
	if errors.Is(err, fence.ErrStale) {
		s.say("slow", "begins again")
		return s.sell(ctx, "slow", slow, slowSells)
	}
	s.sold += slowSells
	return err
}

// sell does the work of a worker when nothing goes wrong.
func (s *story) sell(ctx context.Context, who string, locks locker.Locker, sells int) error {
	return locker.Do(ctx, locks, product, func(ctx context.Context) error {
		lease, _ := locker.LeaseFromContext(ctx)
		before, err := s.begin(ctx, who, lease)
		if err != nil {
			return err
		}
		if err := s.finish(ctx, who, lease, before-sells); err != nil {
			return err
		}
		s.sold += sells
		return nil
	})
}

func (s *story) begin(ctx context.Context, who string, lease *locker.Lease) (before int, err error) {
	before, err = s.read(s.table, ctx, product, lease.Token())
	s.say(who, "has the lock with token %d, reads %d", lease.Token(), before)
	return before, err
}

func (s *story) finish(ctx context.Context, who string, lease *locker.Lease, after int) error {
	err := s.write(s.table, ctx, product, after, lease.Token())
	switch {
	case err == nil:
		s.writes++
		s.say(who, "writes %d with token %d: accepted", after, lease.Token())
	case errors.Is(err, fence.ErrStale):
		s.refused++
		s.say(who, "writes %d with token %d: %v", after, lease.Token(), err)
	}
	return err
}
