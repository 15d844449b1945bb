package strategy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// redlockNode is a server that is reached by TLS only, with an authority of its own,
// by a user of its own who may lock below "app:".
type redlockNode struct {
	*redistest.Server
	user, password string
}

func startRedlockNodes(t *testing.T) []redlockNode {
	t.Helper()
	var nodes []redlockNode
	for i := range 3 {
		// The plain port is for the set-up, and nobody gets in there without a password.
		n := redlockNode{redistest.Start(t, redistest.WithTLS()), fmt.Sprint("user", i), fmt.Sprint("p:@/ ", i)}
		n.AddUser(t, n.user, n.password, "~app:*", "~locker:fence:*", "&locker:released:*",
			"+evalsha", "+eval", "+subscribe", "+unsubscribe", "+ping", "+info", "+get", "+set", "+del", "+exists",
			"+pttl", "+pexpire", "+type", "+incrby", "+time", "+publish")
		require.NoError(t, n.Client(t).ConfigSet(t.Context(), "requirepass", "nobody").Err())
		nodes = append(nodes, n)
	}
	return nodes
}

// yaml is the document that lists the nodes.
func redlockYAML(t *testing.T, nodes []redlockNode) string {
	t.Helper()
	var doc strings.Builder
	doc.WriteString("strategy: redlock\nprefix: 'app:'\nttl: 20s\nnodes:\n")
	for _, n := range nodes {
		ca, cert, key := n.TLSFiles(t)
		fmt.Fprintf(&doc, "- addr: %s\n  username: %s\n  password: '%s'\n  tls: {ca_file: %s, cert_file: %s, key_file: %s}\n",
			n.TLSAddr(t), n.user, n.password, ca, cert, key)
	}
	return doc.String()
}

func openYAML(t *testing.T, doc string) locker.Locker {
	t.Helper()
	cfg, err := ParseYAML([]byte(doc))
	require.NoError(t, err)
	l, release, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(release)
	return l
}

func TestRedlockNodesWithTheirOwnTLSAndUsers(t *testing.T) {
	t.Parallel()
	nodes := startRedlockNodes(t)
	doc := redlockYAML(t, nodes)
	l, other := openYAML(t, doc), openYAML(t, doc)
	err := locker.Do(t.Context(), l, "k", func(ctx context.Context) error {
		_, err := other.TryLock(ctx, "k")
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		return ctx.Err()
	})
	require.NoError(t, err)

	// One node that knows another password is a minority, two are none to do without.
	nodes[0].password = "wrong"
	require.NoError(t, locker.Do(t.Context(), openYAML(t, redlockYAML(t, nodes)), "k", func(ctx context.Context) error { return ctx.Err() }))
	nodes[1].password = "wrong"
	_, err = openYAML(t, redlockYAML(t, nodes)).Lock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, nodes[0].TLSAddr(t)+": WRONGPASS")
	require.ErrorContains(t, err, nodes[1].TLSAddr(t)+": WRONGPASS")
	require.NotContains(t, err.Error(), nodes[2].TLSAddr(t))
}

// Certificates of another authority than the node's are refused at once, by name.
func TestRedlockNodeOfAnotherAuthority(t *testing.T) {
	t.Parallel()
	nodes := startRedlockNodes(t)
	doc := redlockYAML(t, nodes)
	ca, _, _ := nodes[0].TLSFiles(t)
	for _, n := range nodes[1:] {
		wrong, _, _ := n.TLSFiles(t)
		doc = strings.ReplaceAll(doc, "ca_file: "+wrong, "ca_file: "+ca)
	}
	_, err := openYAML(t, doc).Lock(t.Context(), "k", locker.WithWait(5*time.Second))
	require.ErrorIs(t, err, locker.ErrUnavailable)
	for _, n := range nodes[1:] {
		require.ErrorContains(t, err, n.TLSAddr(t)+": tls: failed to verify certificate")
	}
}

// By a URL the nodes share everything but the address.
func TestRedlockURLByTLS(t *testing.T) {
	t.Parallel()
	var addrs []string
	for range 3 {
		s := redistest.Start(t, redistest.WithTLS(), redistest.WithConfig("--tls-auth-clients", "no"))
		s.AddUser(t, "locks", password, "+@all", "~*", "&*")
		addrs = append(addrs, s.TLSAddr(t))
	}
	l, release, err := OpenURL(t.Context(), "redlock+rediss://locks:"+password+"@"+addrs[0]+
		"?node="+addrs[1]+"&node="+addrs[2]+"&skip_verify=true&ttl=20s&protocol=3")
	require.NoError(t, err)
	t.Cleanup(release)
	require.NoError(t, locker.Do(t.Context(), l, "k", func(ctx context.Context) error { return ctx.Err() }))
}
