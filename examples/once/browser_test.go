//go:build browser

package main

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/strategy"
)

var shots = flag.String("screenshots", "", "a directory for screenshots")

func newBrowser(t *testing.T) context.Context {
	t.Helper()
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// answersOf waits until both frames have an answer, and returns their texts.
func answersOf(first, second *string) chromedp.Action {
	const answers = `['first', 'second'].map(name =>
		document.querySelector('iframe[name=' + name + ']').contentDocument?.querySelector('#placed')?.innerText ?? '')`
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for {
			var both []string
			if err := chromedp.Evaluate(answers, &both).Do(ctx); err != nil {
				return err
			}
			if *first, *second = both[0], both[1]; *first != "" && *second != "" {
				return nil
			}
			if err := cli.Sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	})
}

// watched opens a shop that takes a second for an order, and reports each form that arrives.
func watched(t *testing.T, url string, guarded bool) (*httptest.Server, <-chan struct{}) {
	t.Helper()
	l, release, err := strategy.OpenURL(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(release)
	routes, err := (&shop{takes: time.Second}).routes(l, guarded)
	require.NoError(t, err)
	arrived := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			arrived <- struct{}{}
		}
		routes.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server, arrived
}

// TestClickedTwiceInABrowser clicks the form as people do: both buttons, the second one while the order of the first
// click is worked on; and the plain button with a double click, of which the browser shows one answer.
func TestClickedTwiceInABrowser(t *testing.T) {
	ctx := newBrowser(t)
	twice := func(server *httptest.Server, arrived <-chan struct{}) (first, second, count string) {
		var shot []byte
		require.NoError(t, chromedp.Run(ctx,
			chromedp.EmulateViewport(800, 700),
			chromedp.Navigate(server.URL),
			chromedp.Click("#first"),
			chromedp.ActionFunc(func(ctx context.Context) error { // else a browser drops what it has not sent yet
				select {
				case <-arrived:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}),
			chromedp.Click("#second"),
			answersOf(&first, &second),
			chromedp.FullScreenshot(&shot, 100),
			chromedp.Navigate(server.URL), chromedp.Text("#count", &count),
		))
		if *shots != "" {
			require.NoError(t, os.WriteFile(filepath.Join(*shots, "once.png"), shot, 0o600))
		}
		return first, second, count
	}
	first, second, count := twice(watched(t, "memory://without", false))
	require.NotEqual(t, first, second)
	require.Equal(t, "2", count, "without a guard each click is an order")

	server, arrived := watched(t, "memory://with", true)
	first, second, count = twice(server, arrived)
	require.Contains(t, first, "Order 1: 2 lamps")
	require.Equal(t, first, second, "both answers are alike")
	require.Equal(t, "1", count)

	var placed string
	require.NoError(t, chromedp.Run(ctx,
		chromedp.Navigate(server.URL),
		chromedp.DoubleClick("#plain"),
		chromedp.WaitVisible("#placed"), chromedp.Text("#placed", &placed),
		chromedp.Navigate(server.URL), chromedp.Text("#count", &count),
	))
	require.Contains(t, placed, "Order 2: 2 lamps")
	require.Equal(t, "2", count)
}
