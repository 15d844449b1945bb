package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/distlock/locker/fence"
)

// A resource in this process: the comparison and the write are one step.
func ExampleMemory_Do() {
	ctx, fences, price := context.Background(), fence.NewMemory(), 0
	set := func(token int64, to int) error {
		return fences.Do(ctx, "lamp", token, func() error {
			price = to
			return nil
		})
	}
	fmt.Println(set(1795396689355718, 10)) // tokens are those of leases: lease.Token()
	fmt.Println(set(1795396689355734, 20)) // of the next owner
	err := set(1795396689355718, 30)       // the first owner was paused, and is late
	fmt.Println(errors.Is(err, fence.ErrStale), price)
	// Output:
	// <nil>
	// <nil>
	// true 20
}

// A Guard of your own calls Validate, compares and remembers in one step of its store.
// Package fencetest tests it.
func ExampleValidate() {
	fmt.Println(fence.Validate("lamp", 0))
	// Output:
	// fence: key "lamp": invalid use: want a fencing token of 1 or more, got 0; take it from Lease.Token, of a Locker without WithoutFencing
}
