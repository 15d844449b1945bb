package strategy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// password stands in every config of these tests that has room for one.
const password = "hunter2"

// testRegistry has a strategy of every kind, on stores of their own.
func testRegistry(t *testing.T) *Registry {
	t.Helper()
	r := NewRegistry()
	require.NoError(t, r.Register("acks", Opener{
		Redis: func(_ redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
			return memory.New(opts...)
		},
		ReplicaAcks: func(n int, timeout time.Duration) locker.Option {
			return locker.WithMaxRenewals(n) // stands in for one of a driver
		},
	}))
	return r
}

// document says whether a case is read by ParseYAML or ParseJSON.
type yamlText string
type jsonText string

func TestWrongConfigs(t *testing.T) {
	g := newWrongGiven(t)
	r := testRegistry(t)
	for _, test := range slices.Concat(g.strategies(), g.places(), g.ofTLS(), g.servers(), g.ofLocks(), g.documents()) {
		t.Run(test.name, func(t *testing.T) {
			var cfg Config
			var err error
			switch in := test.input.(type) {
			case Config:
				cfg = in
			case string:
				cfg.URL = in
			case yamlText:
				cfg, err = ParseYAML([]byte(in))
			case jsonText:
				cfg, err = ParseJSON([]byte(in))
			}
			if err == nil {
				var release func()
				if _, release, err = r.Open(t.Context(), cfg); err == nil {
					release()
				}
			}
			require.ErrorIs(t, err, locker.ErrInvalid)
			require.ErrorContains(t, err, test.field)
			require.ErrorContains(t, err, test.value)
			require.ErrorContains(t, err, test.allowed)
			require.NotContains(t, err.Error(), password)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

const (
	strategyNames = "acks, blpop, hashreentrant, memory, redlock, setnx"
	schemeNames   = "redis, redis-cluster, redis-sentinel, rediss, rediss-cluster, rediss-sentinel, unix"
)

// A wrongConfig is refused with an error that names the field, shows the value and says what is allowed.
type wrongConfig struct {
	name                  string
	input                 any // a Config, a URL, yamlText or jsonText
	field, value, allowed string
}

// wrongGiven has what wrong configurations name.
type wrongGiven struct {
	at                  []string
	rdb, rdb2, noClient redis.UniversalClient
	missing, noCert     string // files
}

func newWrongGiven(t *testing.T) wrongGiven {
	t.Helper()
	dir := t.TempDir()
	noCert := filepath.Join(dir, "none.pem")
	require.NoError(t, os.WriteFile(noCert, []byte("no certificate, but "+password), 0o600))
	return wrongGiven{
		at:  []string{"h:6379"},
		rdb: nowhere(t), rdb2: nowhere(t),
		missing: filepath.Join(dir, "missing.pem"), noCert: noCert,
	}
}

// The strategy.
func (g wrongGiven) strategies() []wrongConfig {
	return []wrongConfig{
		{"no strategy", Config{Addrs: g.at, Password: password}, "strategy", ``, "there are " + strategyNames},
		{"unknown strategy", Config{Strategy: "setnix", Addrs: g.at, Password: password}, "strategy", `"setnix"`, strategyNames},
		{"case matters", Config{Strategy: "SetNX", Addrs: g.at, Password: password}, "strategy", `"SetNX"`, strategyNames},
		{"url without strategy", "redis://u:hunter2@h", "url", `redis://xxxxx@h`, strategyNames},
		{"unknown strategy in url", "setnix+redis://u:hunter2@h", `strategy "setnix"`, `setnix+redis://xxxxx@h`, strategyNames},
		{"neither strategy nor scheme", "postgres://u:hunter2@h", `"postgres"`, `postgres://xxxxx@h`, schemeNames},
		{"two strategies", Config{Strategy: "blpop", URL: "setnx+redis://u:hunter2@h"}, "strategy", `"blpop"`, "setnx"},
	}
}

// Where Redis is.
func (g wrongGiven) places() []wrongConfig {
	return []wrongConfig{
		{"nowhere", Config{Strategy: "setnx", Password: password}, "addrs", ``, "url, addrs, unix_socket and Client"},
		{"half a bracket", Config{Strategy: "setnx", Addrs: []string{"]"}, Password: password}, "addrs", `"]"`, "host or host:port"},
		{"half a bracket in addr", "setnx+redis-cluster://u:hunter2@h?addr=%5D", "addr", `"]"`, "host or host:port"},
		{"half a bracket in node", "redlock+redis://u:hunter2@h?node=%5D&node=b", "node", `"]"`, "host or host:port"},
		{"half a bracket in nodes", Config{Strategy: "redlock", Nodes: []Node{{Addr: "]", Password: password}, {Addr: "b"}, {Addr: "c"}}}, "nodes[0].addr", `"]"`, "host or host:port"},
		{"unknown scheme", "setnx+reddis://u:hunter2@h", `scheme "reddis"`, `setnx+reddis://xxxxx@h`, schemeNames},
		{"no scheme", "setnx://u:hunter2@h", "url", `setnx://xxxxx@h`, schemeNames},
		{"no url", "hunter2", "url", `"xxxxx"`, "<strategy>+<scheme>://user:password@host:port"},
		{"url and addrs", Config{Strategy: "setnx", URL: "redis://u:hunter2@h", Addrs: g.at}, "addrs", `h:6379`, "not together with url"},
		{"url and db", Config{Strategy: "setnx", URL: "redis://u:hunter2@h", DB: 3}, "db", `"3"`, "not together with url"},
		{"url and password twice", Config{Strategy: "setnx", URL: "redis://u:hunter2@h", Password: password}, "password", `"xxxxx"`, "not together with the one in the url"},
		{"client and url", Config{Strategy: "setnx", URL: "redis://u:hunter2@h", Client: g.rdb}, "url", `redis://xxxxx@h`, "not together with Client"},
		{"client and password", Config{Strategy: "setnx", Password: password, Client: g.rdb}, "password", `"xxxxx"`, "not together with Client"},
		{"several addrs", Config{Strategy: "setnx", Addrs: []string{"h:1", "h:2"}, Password: password}, "addrs", `h:2`, "cluster: true or, for Sentinels, master_name"},
		{"bad addr", Config{Strategy: "setnx", Addrs: []string{"h:x"}, Password: password}, "addrs", `"h:x"`, "host:port, with a port of 1 to 65535"},
		{"password in addr", Config{Strategy: "setnx", Addrs: []string{"u:hunter2@h:6379"}}, "addrs", `not shown`, "host:port"},
		{"bad port", "setnx+redis://u:hunter2@h:66666", "url's address", `"h:66666"`, "1 to 65535"},
		{"unescaped password", "setnx+redis://u:hun#hunter2@h", "url", `"setnx+redis://xxxxx"`, "escaped, as in %2F"},
		{"password without host", "setnx+redis://u:hunter2", "url", `"setnx+redis://xxxxx"`, "user:password@host"},
		{"negative db", Config{Strategy: "setnx", Addrs: g.at, DB: -1, Password: password}, "db", `"-1"`, "0 or more"},
		{"bad db", "setnx+redis://u:hunter2@h/five", "db", `"five"`, "a whole number"},
		{"cluster with db", Config{Strategy: "setnx", Addrs: g.at, Cluster: true, DB: 1, Password: password}, "db", `"1"`, "a cluster has database 0 only"},
		{"cluster url with db", "setnx+redis-cluster://u:hunter2@h/1", "db 1", `xxxxx@h/1`, "a cluster has database 0 only"},
		{"cluster and sentinel", Config{Strategy: "setnx", Addrs: g.at, Cluster: true, MasterName: "m", Password: password}, "master_name", `"m"`, "not together with cluster"},
		{"cluster reading replicas", "setnx+redis-cluster://u:hunter2@h?read_only=1", "read_only", `read_only=1`, "locks are taken on masters"},
		{"bad cluster node", "setnx+redis-cluster://u:hunter2@h?addr=h:x", "addr", `"h:x"`, "1 to 65535"},
		{"sentinel without master", "setnx+redis-sentinel://u:hunter2@h?password=hunter2", "master_name", `password=xxxxx`, "needs the parameter master_name"},
		{"sentinel password without sentinel", Config{Strategy: "setnx", Addrs: g.at, SentinelPassword: password}, "sentinel_password", `"xxxxx"`, "master_name"},
		{"sentinel password beside a plain url", Config{Strategy: "setnx", URL: "redis://h", SentinelPassword: password}, "sentinel_password", `"xxxxx"`, "master_name"},
		{"user without password", Config{Strategy: "setnx", Addrs: g.at, Username: "app"}, "username", ``, "only together with a password"},
		{"user without password in url", "setnx+redis://hunter2@h", "username", ``, "together with a password"},
		{"sentinel user without password", Config{Strategy: "setnx", Addrs: g.at, MasterName: "m", SentinelUsername: "app", Password: password}, "sentinel_username", ``, "only together with a password"},
		{"socket and addrs", Config{Strategy: "setnx", Addrs: g.at, UnixSocket: "/s", Password: password}, "addrs", `h:6379`, "not together with unix_socket"},
		{"relative socket", "setnx+unix://run/s", "url", `setnx+unix://run/s`, "from the root"},
		{"memory with an address", "memory://u:hunter2@h:6379", "url", `memory://xxxxx@h:6379`, "memory://name"},
		{"memory over redis", "memory+redis://u:hunter2@h", "url", `redis://xxxxx@h`, "memory://name"},
		{"memory with addrs", Config{Strategy: "memory", Addrs: g.at, Password: password}, "addrs", `h:6379`, "for strategies on Redis, not for memory"},
		{"memory with a client", Config{Strategy: "memory", Client: g.rdb}, "Client", `(given)`, "not for memory"},
	}
}

// TLS.
func (g wrongGiven) ofTLS() []wrongConfig {
	return []wrongConfig{
		{"certificate without key", Config{Strategy: "setnx", Addrs: g.at, Password: password, TLS: &TLS{CertFile: "c.pem"}}, "tls.cert_file", `"c.pem"`, "both or neither"},
		{"key without certificate", "setnx+rediss://u:hunter2@h?tls_key_file=k.pem", "tls.cert_file", ``, "both or neither"},
		{"no such CA", Config{Strategy: "setnx", Addrs: g.at, Password: password, TLS: &TLS{CAFile: g.missing}}, "tls.ca_file", g.missing, "a file that can be read: no such file"},
		{"CA that is none", Config{Strategy: "setnx", Addrs: g.at, Password: password, TLS: &TLS{CAFile: g.noCert}}, "tls.ca_file", g.noCert, "certificates in PEM"},
		{"certificate that is none", Config{Strategy: "setnx", Addrs: g.at, TLS: &TLS{CertFile: g.noCert, KeyFile: g.noCert}}, "tls.cert_file", g.noCert, "a certificate in PEM"},
		{"CA that nobody asks", Config{Strategy: "setnx", Addrs: g.at, TLS: &TLS{CAFile: g.missing, InsecureSkipVerify: true}}, "tls.ca_file", g.missing, "insecure_skip_verify"},
		{"TLS beside a plain url", Config{Strategy: "setnx", URL: "redis://u:hunter2@h", TLS: &TLS{ServerName: "s"}}, "tls", `(given)`, "scheme begins with rediss"},
		{"TLS parameter of a plain url", "setnx+redis://u:hunter2@h?tls_server_name=s", "tls_server_name", `tls_server_name=s`, "scheme that begins with rediss"},
		{"TLS on a socket", Config{Strategy: "setnx", UnixSocket: "/s", Password: password, TLS: &TLS{}}, "tls", `(given)`, "not together with unix_socket"},
	}
}

// Several servers.
func (g wrongGiven) servers() []wrongConfig {
	return []wrongConfig{
		{"one node", "redlock+redis://u:hunter2@h1", "nodes", `not 1`, "an odd number of nodes, at least 3"},
		{"even number of nodes", "redlock+redis://u:hunter2@h1?node=h2&node=h3&node=h4", "nodes", `not 4`, "an odd number of nodes, at least 3"},
		{"no nodes", Config{Strategy: "redlock"}, "nodes", `not 0`, "at least 3"},
		{"same node twice", "redlock+redis://u:hunter2@h1?node=h2:6379&node=h2", "node", `"h2:6379"`, "a server of its own"},
		{"relative socket of a node", "redlock+unix:///1?node=2&node=/3", "node", `"2"`, "from the root"},
		{"password in a node", "redlock+redis://h1?node=h2&node=u%3Ahunter2%40h3", "node", `not shown`, "host:port"},
		{"nodes on a cluster", "redlock+redis-cluster://u:hunter2@h1?node=h2&node=h3", "url", `xxxxx@h1`, "redis, rediss, unix"},
		{"addrs for nodes", Config{Strategy: "redlock", Addrs: g.at, Password: password}, "addrs", `h:6379`, "several independent servers"},
		{"one password for all nodes", Config{Strategy: "redlock", Password: password}, "password", `"xxxxx"`, "given for each of the nodes"},
		{"a client for several servers", Config{Strategy: "redlock", Client: g.rdb}, "Client", `(given)`, "Clients"},
		{"two clients", Config{Strategy: "redlock", Clients: []redis.UniversalClient{g.rdb, g.rdb2}}, "nodes", `not 2`, "odd number"},
		{"one client thrice", Config{Strategy: "redlock", Clients: []redis.UniversalClient{g.rdb, g.rdb, g.rdb}}, "Clients[1]", `(given)`, "another server"},
		{"a nil client", Config{Strategy: "redlock", Clients: []redis.UniversalClient{g.rdb, g.noClient, g.rdb2}}, "node #2", `nil`, "client"},
		{"nodes for one server", Config{Strategy: "setnx", Nodes: []Node{{Addr: "h", Password: password}}}, "nodes", `h`, "such are redlock"},
		{"node that is nowhere", Config{Strategy: "redlock", Nodes: []Node{{Password: password}}}, "nodes[0]", ``, "one of url, addrs, unix_socket"},
		{"node in two places", Config{Strategy: "redlock", Nodes: []Node{{Addr: "h", URL: "redis://u:hunter2@h"}}}, "nodes[0].addr", `"h"`, "not together with url"},
		{"node with parameters about locks", Config{Strategy: "redlock", Nodes: []Node{{URL: "redis://u:hunter2@h?ttl=5s"}}}, "nodes[0].url", `ttl=5s`, "unknown parameter ttl; there are client_name"},
	}
}

// Locks.
func (g wrongGiven) ofLocks() []wrongConfig {
	return []wrongConfig{
		{"short ttl", Config{Strategy: "setnx", Addrs: g.at, Password: password, TTL: 50 * time.Millisecond}, "ttl", `"50ms"`, "100ms to 24h"},
		{"zero ttl", "setnx+redis://u:hunter2@h?ttl=0s", "ttl", `"0s"`, "more than 0"},
		{"ttl without unit", "setnx+redis://u:hunter2@h?ttl=30", "ttl", `"30"`, `"30s"`},
		{"ttl twice", "setnx+redis://u:hunter2@h?ttl=30s&ttl=20s", "ttl", ``, "once"},
		{"ttl here and there", Config{URL: "setnx+redis://u:hunter2@h?ttl=30s", TTL: time.Second}, "ttl", `"1s"`, "not together with the one in the url"},
		{"negative wait", "memory://?wait=-5s", "wait", `"-5s"`, "0s for one attempt, or more"},
		{"interval not below ttl", "setnx+redis://u:hunter2@h?ttl=10s&renew_interval=10s", "renew_interval", `"10s"`, "too long for a TTL of 10s"},
		{"interval not below default ttl", Config{Strategy: "memory", RenewInterval: 40 * time.Second}, "renew_interval", `"40s"`, "too long for a TTL of 30s"},
		{"tiny interval", Config{Strategy: "memory", RenewInterval: time.Microsecond}, "renew_interval", `"1µs"`, "1ms to"},
		{"interval of no renewal", "memory://?renewal=false&renew_interval=1s", "renew_interval", `"1s"`, "not together with renewal: false"},
		{"limit of no renewal", Config{Strategy: "memory", Renewal: new(false), MaxRenewals: 3}, "max_renewals", `"3"`, "not together with renewal: false"},
		{"negative limit", Config{Strategy: "memory", MaxRenewals: -1}, "max_renewals", `"-1"`, "1 to"},
		{"negative hold", Config{Strategy: "memory", MaxHold: -time.Second}, "max_hold", `"-1s"`, "more than 0s"},
		{"wide margin", "memory://?ttl=10s&margin=6s", "margin", `"6s"`, "half of the TTL, which is 10s"},
		{"long stickiness", Config{Strategy: "memory", Sticky: time.Minute}, "sticky", `"1m0s"`, "want 1ms to 1s"},
		{"sticky on several servers", "redlock+redis://h1?node=h2&node=h3&sticky=1s", "", ``, "who holds the lock"},
		{"renewal neither on nor off", "memory://?renewal=maybe", "renewal", `"maybe"`, "true or false"},
		{"long prefix", Config{Strategy: "memory", Prefix: strings.Repeat("x", 20000)}, "prefix", `(20000 bytes)`, "at most 16384 bytes of UTF-8"},
		{"prefix that is no text", Config{Strategy: "memory", Prefix: "\xff"}, "prefix", `"\xff"`, "UTF-8"},
		{"nil option", Config{Strategy: "memory", Options: []locker.Option{nil}}, "option", `nil`, ""},
		{"acks without replicas", "memory://?replica_acks=1", "replica_acks", `"1"`, "not supported by strategy memory; supported by: acks, blpop, hashreentrant, setnx"},
		{"acks on several servers", "redlock+redis://h1?node=h2&node=h3&replica_acks=1", "replica_acks", `"1"`, "not supported by strategy redlock"},
		{"negative acks", "acks+redis://u:hunter2@h?replica_acks=-1", "replica_acks", `"-1"`, "at least 1"},
		{"timeout without acks", "acks+redis://u:hunter2@h?replica_acks_timeout=1s", "replica_acks_timeout", `"1s"`, "only together with replica_acks"},
		{"hasty acks", "acks+redis://u:hunter2@h?replica_acks=1&replica_acks_timeout=1us", "replica_acks_timeout", `"1µs"`, "1ms to 3s"},
		{"endless acks", "acks+redis://u:hunter2@h?replica_acks=1&replica_acks_timeout=30s", "replica_acks_timeout", `"30s"`, "less than the ttl"},
	}
}

// Parameters and documents.
func (g wrongGiven) documents() []wrongConfig {
	return []wrongConfig{
		{"unknown parameter", "setnx+redis://u:hunter2@h?tll=3s", "parameter tll", `tll=xxxxx`, "there are client_name"},
		{"unknown parameter of memory", "memory://?pool_size=3", "parameter pool_size", `memory:///?pool_size=3`, "there are fencing, hand_over, loss_detection, margin, max_hold"},
		{"parameter of another scheme", "setnx+redis://u:hunter2@h?master_name=m", "parameter master_name", `master_name=m`, "there are client_name"},
		{"bad parameter of go-redis", "setnx+redis://u:hunter2@h?protocol=x", "protocol", `"x"`, "number"},
		{"bare & in a password", "setnx+redis-sentinel://h?master_name=m&password=hun&hunter2", "parameter behind the password", `password=xxxxx`, "& is %26"},
		{"bad escape", "setnx+redis-sentinel://h?password=hunter2%zz", "url", `?=xxxxx`, "parameters of the form"},
		{"unknown key", yamlText("strategy: setnx\npasswort: hunter2\n"), "key", `"passwort" (line 2)`, "there are addrs, cluster, db"},
		{"unknown key below", yamlText("strategy: setnx\npassword: hunter2\ntls: {ca: x}\n"), "key", `"tls.ca" (line 3)`, "there are ca_file, cert_file"},
		{"key twice", jsonText(`{"password":"hunter2", "ttl":"1s", "ttl":"2s"}`), "ttl", `(line 1)`, "given twice"},
		{"keys have one case", jsonText(`{"Password":"hunter2"}`), "key", `"Password"`, "password"},
		{"duration as number", jsonText(`{"password":"hunter2","ttl":30}`), "ttl", `"30"`, `a duration such as "30s"`},
		{"null", yamlText("password: hunter2\ntls:\n"), "tls", `(null) (line 2)`, "or leave it out"},
		{"scalar for list", yamlText("addrs: u:hunter2@h\n"), "addrs", "not shown", "a list"},
		{"list for scalar", yamlText("password: [hunter2]\n"), "password", "(a list)", "a single value"},
		{"strings for nodes", yamlText("nodes: ['redis://u:hunter2@h']\n"), "nodes[0]", "redis://xxxxx@h", "a mapping with some of the keys addr"},
		{"tagged", yamlText("password: !vault hunter2\n"), "password", "xxxxx", "a single value"},
		{"alias for string", yamlText("password: *hunter2\n"), "document", "", "not YAML"},
		{"not a mapping", yamlText("hunter2"), "document", "", "a mapping with some of the keys addrs"},
		{"no YAML", yamlText("strategy: setnx\npassword: 'hunter2\n"), "document", "", "not YAML: "},
		{"two documents", yamlText("password: hunter2\n---\npassword: hunter2\n"), "document", "", "something follows"},
		{"empty", yamlText(""), "document", "", "it is empty"},
		{"no JSON", jsonText(`{"password": hunter2}`), "document", "", "not JSON: "},
		{"half of JSON", jsonText(`{"password": "hunter2"`), "document", "", "not JSON: unexpected end"},
		{"JSON and more", jsonText(`{"password": "hunter2"} 1`), "document", "", "after top-level value"},
		{"deep JSON", jsonText(strings.Repeat("[", 1<<20)), "document", "", "max depth"},
		{"zero in a document", yamlText("password: hunter2\nmax_renewals: 0\n"), "max_renewals", `"0" (line 2)`, "more than 0"},
	}
}

func TestFileErrorsMatchTheirCause(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "locks.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = Load("locks.toml")
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorContains(t, err, ".yaml")
}
