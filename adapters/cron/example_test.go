package cronlocker_test

import (
	"context"
	"fmt"
	"log"

	"github.com/robfig/cron/v3"

	"github.com/distlock/locker"
	cronlocker "github.com/distlock/locker/adapters/cron"
	"github.com/distlock/locker/strategy/memory"
)

// A job that one of all instances runs, with a context that ends with its lock.
func ExampleOnlyOne() {
	l, _ := memory.New() // in production on a Redis that the instances share
	defer l.Close()
	onlyOne, err := cronlocker.OnlyOne(l, "reports/nightly")
	if err != nil {
		log.Fatal(err)
	}
	report := cronlocker.Func(func(ctx context.Context) {
		lease, _ := locker.LeaseFromContext(ctx)
		fmt.Println("reported, with a token:", lease.Token() > 0)
	})

	c := cron.New()
	job := cron.NewChain(cron.Recover(cron.DefaultLogger), onlyOne).Then(report)
	id, err := c.AddJob("@daily", job)
	if err != nil {
		log.Fatal(err)
	}
	c.Entry(id).Job.Run() // as the Cron does at midnight, after its Start
	// Output: reported, with a token: true
}
