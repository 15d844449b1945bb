package mutex_test

import (
	"fmt"
	"log"
	"sync"

	"github.com/distlock/locker/adapters/mutex"
	"github.com/distlock/locker/strategy/memory"
)

// A sync.Cond takes a sync.Locker; so do many libraries.
func Example() {
	l, _ := memory.New()
	defer l.Close()
	onLoss := func(err error) {
		// The section that runs is not protected any more, or cannot begin.
		log.Print("ledger: ", err)
	}
	m, err := mutex.New(l, "ledger", onLoss)
	if err != nil {
		log.Fatal(err)
	}

	var mu sync.Locker = m
	mu.Lock()
	fmt.Println("inside, with a token:", m.Lease().Token() > 0)
	mu.Unlock()
	// Output: inside, with a token: true
}
