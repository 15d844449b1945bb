// Command locker runs a command while it holds a distributed lock. It needs Unix.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "locker: locker run needs process groups and signals as Unix has them")
	os.Exit(125)
}
