package certmagiclocker_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/caddyserver/certmagic"

	certmagiclocker "github.com/distlock/locker/adapters/certmagic"
	"github.com/distlock/locker/strategy/memory"
)

// Certificates in files that the instances share, locks elsewhere.
func Example() {
	dir, _ := os.MkdirTemp("", "certs")
	defer os.RemoveAll(dir)
	l, _ := memory.New() // in production on a Redis that the instances share
	defer l.Close()

	storage, err := certmagiclocker.New(&certmagic.FileStorage{Path: dir}, l)
	if err != nil {
		log.Fatal(err)
	}
	certmagic.Default.Storage = storage // then certmagic.HTTPS, certmagic.TLS, ...

	ctx := context.Background()
	_ = storage.Store(ctx, "certificates/example.com.crt", []byte("..."))
	fmt.Println("in the files:", storage.Exists(ctx, "certificates/example.com.crt"))
	fmt.Println(storage.Lock(ctx, "issue_cert_example.com"))
	fmt.Println(storage.TryLock(ctx, "issue_cert_example.com"))
	fmt.Println(storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// in the files: true
	// <nil>
	// false <nil>
	// <nil>
}
