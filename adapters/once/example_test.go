package once_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/strategy/memory"
)

// An order that is placed twice is taken once.
func Example() {
	l, _ := memory.New()
	defer l.Close()
	guard, err := once.New(l, once.WithTTL(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})))

	for range 2 {
		r := httptest.NewRequest("POST", "/orders", nil)
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 201
	// 409
}

// An order that is placed twice is taken once, and answered twice.
func ExampleWithReplay() {
	l, _ := memory.New()
	defer l.Close()
	answers, err := once.NewMemory(64 << 20) // of this process; once.NewRedis serves all
	if err != nil {
		log.Fatal(err)
	}
	user := func(r *http.Request) string { return r.Header.Get("Authorization") }
	guard, err := once.New(l, once.WithTTL(time.Hour), once.WithReplay(answers, 64<<10, user))
	if err != nil {
		log.Fatal(err)
	}
	orders := 0
	h := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", orders)
	}))

	for range 2 {
		r := httptest.NewRequest("POST", "/orders", nil)
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get(once.HeaderReplayed))
	}
	// Output:
	// 201 order 1, replayed: ""
	// 201 order 1, replayed: "true"
}
