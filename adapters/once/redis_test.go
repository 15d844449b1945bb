package once_test

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/redistest/leaktest"
	"github.com/distlock/locker/strategy"
)

func TestMain(m *testing.M) {
	child.Serve("shop", serveShop)
	leaktest.Main(m)
}

// Each strategy lets one of many submissions at once, to two processes, through, and the
// key stays in the store without its Locker.
func TestOnRedis(t *testing.T) {
	server := redistest.Shared(t)
	for _, name := range []string{"setnx", "hashreentrant", "blpop"} {
		t.Run(name, func(t *testing.T) {
			url := strings.Replace(server.URL(), "redis://", name+"+redis://", 1)
			prefix := rand.Text() + ":" // the keys stay
			var servers []*httptest.Server
			var release []func()
			for range 2 {
				l, closeAll, err := strategy.OpenURL(t.Context(), url)
				require.NoError(t, err)
				h := guard(t, l, func(http.ResponseWriter, *http.Request) {}, once.WithTTL(time.Minute), once.WithPrefix(prefix))
				s := httptest.NewServer(h)
				servers, release = append(servers, s), append(release, s.Close, closeAll)
			}
			var wg sync.WaitGroup
			answers := make(chan int, 20)
			for i := range cap(answers) {
				wg.Go(func() {
					r, err := http.NewRequest(http.MethodPost, servers[i%2].URL+"/orders", nil)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set(once.HeaderKey, "1")
					answer, err := http.DefaultClient.Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					answer.Body.Close()
					answers <- answer.StatusCode
				})
			}
			wg.Wait()
			http.DefaultClient.CloseIdleConnections()
			close(answers)
			count := make(map[int]int)
			for status := range answers {
				count[status]++
			}
			require.Equal(t, map[int]int{http.StatusOK: 1, http.StatusConflict: 19}, count)
			for _, f := range release {
				f()
			}
			left, err := server.Client(t).PTTL(t.Context(), prefix+"POST /orders 1").Result()
			require.NoError(t, err)
			require.Greater(t, left, 30*time.Second)
		})
	}
}

// A header is replayed byte by byte, whatever it holds.
func TestHeaderThatIsNotUTF8(t *testing.T) {
	answers, err := once.NewRedis(redistest.Shared(t).Client(t), rand.Text()+":")
	require.NoError(t, err)
	want := once.Answer{Status: http.StatusOK, Body: []byte("\xff"), Header: http.Header{
		"Content-Disposition": {"attachment; filename=\"caf\xe9.pdf\""}, "X-Two": {"a", "\xff"}, "Etag": {`"é"`},
	}}
	require.NoError(t, answers.Put(t.Context(), "k", want, time.Minute))
	got, ok, err := answers.Get(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, got)
}
