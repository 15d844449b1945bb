package gocronlocker_test

import (
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	gocronlocker "github.com/distlock/locker/adapters/gocron"
	"github.com/distlock/locker/strategy/memory"
)

// Two instances have the same job; one of them runs it.
func Example() {
	store := memory.NewStore() // in place of a Redis
	at := time.Now().Add(100 * time.Millisecond)
	ran := make(chan string, 2)
	report := func(token int64) { ran <- fmt.Sprint("reported, with a token: ", token > 0) }
	for range 2 {
		l, _ := store.New()
		defer l.Close()
		jobs, err := gocronlocker.New(l)
		if err != nil {
			log.Fatal(err)
		}
		s, _ := gocron.NewScheduler(gocron.WithDistributedLocker(jobs))
		defer s.Shutdown() // it waits for the job
		_, _ = s.NewJob(
			gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(at)),
			gocron.NewTask(func() { report(jobs.Lease("report").Token()) }),
			gocron.WithName("report"),
		)
		s.Start()
	}
	fmt.Println(<-ran)
	select {
	case again := <-ran:
		fmt.Println(again)
	case <-time.After(200 * time.Millisecond):
	}
	// Output: reported, with a token: true
}
