package compare

import (
	"bytes"
	"encoding/json"
	"net/url"
	"testing"

	"github.com/distlock/locker/cmd/locker/internal/servers"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestOtherStores: strategies on stores of several kinds are compared, and no output has a password.
func TestOtherStores(t *testing.T) {
	t.Parallel()
	if servers.LeftOut("postgres") {
		t.Skip("left out")
	}
	server, err := servers.Postgres(t.Context())
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	u.User = url.UserPassword("app", "secret") // the server asks for none
	rdb := redistest.Start(t)
	r, err := Run(t.Context(), quiet(Options{URLs: []string{u.String(), "blpop+" + rdb.URL()}, NoSuite: true}))
	require.NoError(t, err)
	require.Equal(t, []string{"postgres", "blpop"}, r.names())
	require.Empty(t, r.Failures())
	require.Contains(t, r.only(), "Only PostgreSQL: locks survive a crash of the server, by its default settings; a key can be locked until a transaction of the application's ends")
	require.Empty(t, rdb.Client(t).Keys(t.Context(), "*locker-compare*").Val())
	var out bytes.Buffer
	require.NoError(t, r.HTML(&out))
	require.NoError(t, json.NewEncoder(&out).Encode(r))
	require.NotContains(t, out.String()+r.Text()+r.Markdown(), "secret")

	u.User = url.UserPassword("stranger", "secret")
	_, err = Run(t.Context(), quiet(Options{URLs: []string{u.String()}, NoSuite: true}))
	require.ErrorContains(t, err, "28000")
	require.NotContains(t, err.Error(), "secret")
}
