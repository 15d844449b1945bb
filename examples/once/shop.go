package main

import (
	"crypto/rand"
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/examples/internal/cli"
)

//go:embed page.html
var text string

// pages has the templates form, placed and refused.
var pages = template.Must(template.New("").Parse(text))

type order struct {
	Number, Lamps int
	At            string
}

// shop keeps its orders in memory.
type shop struct {
	takes time.Duration

	mu     sync.Mutex
	orders []order
}

// routes returns the pages of the shop; guarded says whether an order that is sent twice is placed once.
func (s *shop) routes(l locker.Locker, guarded bool) (http.Handler, error) {
	orders := http.Handler(http.HandlerFunc(s.place))
	if guarded {
		answers, err := once.NewMemory(16 << 20) // of this process; once.NewRedis serves all
		if err != nil {
			return nil, err
		}
		guard, err := once.New(l,
			once.WithTTL(time.Hour),
			once.WithKey(func(r *http.Request) string { return r.PostFormValue("key") }),
			// The same form has the same fields. A shop with customers adds who sends it.
			once.WithReplay(answers, 64<<10, func(r *http.Request) string { return r.PostForm.Encode() }),
			once.WithWait(30*time.Second), // the second click comes while the first one is worked on
			once.WithRefusal(func(w http.ResponseWriter, _ *http.Request, status int, _ error) {
				show(w, status, "refused", http.StatusText(status))
			}),
		)
		if err != nil {
			return nil, err
		}
		orders = guard(orders)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", orders)
	mux.HandleFunc("GET /{$}", s.form)
	return mux, nil
}

// form shows a form with a key of its own, and the orders so far.
func (s *shop) form(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	orders := append([]order(nil), s.orders...)
	s.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store") // a form that is opened again is another order
	show(w, http.StatusOK, "form", map[string]any{"Key": rand.Text(), "Orders": orders})
}

// place places an order, which takes some time. Its context ends with the lock, and when the client leaves.
func (s *shop) place(w http.ResponseWriter, r *http.Request) {
	lamps, err := strconv.Atoi(r.PostFormValue("lamps"))
	if err != nil || lamps < 1 || lamps > 100 || r.PostFormValue("key") == "" {
		show(w, http.StatusBadRequest, "refused", "Choose 1 to 100 lamps.")
		return
	}
	if cli.Sleep(r.Context(), s.takes) != nil { // not placed: whoever sends the form again may
		show(w, http.StatusServiceUnavailable, "refused", "The order was not placed.")
		return
	}
	s.mu.Lock()
	o := order{len(s.orders) + 1, lamps, time.Now().Format("15:04:05.000")}
	s.orders = append(s.orders, o)
	s.mu.Unlock()
	show(w, http.StatusCreated, "placed", o)
}

func show(w http.ResponseWriter, status int, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = pages.ExecuteTemplate(w, name, data) // fails if the client has left
}
