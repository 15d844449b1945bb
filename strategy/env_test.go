package strategy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// odd has every character that means something in a URL or in YAML.
const odd = "p@ss/w?o#r&d=:[]{}$$'\"% \\ !*,é"

func TestDocumentsTakeValuesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOST", "h")
	t.Setenv("ODD", odd)
	t.Setenv("DB", "3")
	t.Setenv("EMPTY", "")
	t.Setenv("NULL", "null")
	want := Config{
		Strategy: "setnx", Addrs: []string{"h:1", "other:6379"}, DB: 3, Username: "null", Password: odd,
		TTL: 5 * time.Second, Renewal: new(false), Prefix: "$a ${HOST} $", TLS: &TLS{CAFile: "/etc/h/ca.pem"},
		Nodes: []Node{{Addr: "h", Password: odd}},
	}
	cfg, err := ParseYAML([]byte(`
strategy: setnx
addrs: ["${HOST}:1", "${UNSET:-other}:6379"]
db: ${DB}
username: ${NULL}
password: ${ODD}
ttl: ${EMPTY:-5s}
renewal: ${UNSET:-off}
prefix: $a $${HOST} $
tls: {ca_file: "/etc/${HOST}/ca.pem"}
nodes:
- addr: ${HOST}
  password: '${ODD}'
`))
	require.NoError(t, err)
	require.Equal(t, want, cfg)
	cfg, err = ParseJSON([]byte(`{"strategy": "setnx", "addrs": ["${HOST}:1", "${UNSET:-other}:6379"], "db": "${DB}",
		"username": "${NULL}", "password": "${ODD}", "ttl": "${EMPTY:-5s}", "renewal": "${UNSET:-off}", "prefix": "$a $${HOST} $",
		"tls": {"ca_file": "/etc/${HOST}/ca.pem"}, "nodes": [{"addr": "${HOST}", "password": "${ODD}"}]}`))
	require.NoError(t, err)
	require.Equal(t, want, cfg)
}

func TestURLsTakeValuesFromTheEnvironment(t *testing.T) {
	t.Setenv("ODD", odd)
	t.Setenv("HOST", "h")
	t.Setenv("ADDR", "h:1")
	t.Setenv("IP6", "[::1]:1")
	t.Setenv("PORT", "1")
	t.Setenv("DB", "3")
	t.Setenv("SOCKET", "/run/redis.sock")
	t.Setenv("REDIS_URL", "redis://user:p%40ss@h:1/3")
	t.Setenv("LOCKS", "setnx+redis://:a$$b@h")
	for url, want := range map[string]Config{
		"setnx+redis://user:${ODD}@${HOST}:${PORT}/${DB}":     {Addrs: []string{"h:1"}, DB: 3, Username: "user", Password: odd},
		"setnx+redis://${ODD}:${ODD}@${ADDR}":                 {Addrs: []string{"h:1"}, Username: odd, Password: odd},
		"setnx+redis://:a$$b$@${IP6}":                         {Addrs: []string{"[::1]:1"}, Password: "a$b$"},
		"setnx+redis://:${UNSET:-x}@${UNSET:-other}?db=${DB}": {Addrs: []string{"other"}, DB: 3, Password: "x"},
		"setnx+${REDIS_URL}":                                  {Addrs: []string{"h:1"}, DB: 3, Username: "user", Password: "p@ss"},
		"setnx+${REDIS_URL}?client_name=x&ttl=${UNSET:-5s}":   {Addrs: []string{"h:1"}, DB: 3, Username: "user", Password: "p@ss", tuning: map[string][]string{"client_name": {"x"}}},
		"${LOCKS}":               {Addrs: []string{"h"}, Password: "a$$b"},
		"setnx+unix://${SOCKET}": {UnixSocket: "/run/redis.sock"},
		"setnx+unix://:${ODD}@${SOCKET}?db=${DB}":                {UnixSocket: "/run/redis.sock", Password: odd, DB: 3},
		"setnx+redis-sentinel://h?master_name=m&password=${ODD}": {Addrs: []string{"h"}, MasterName: "m", Password: odd},
	} {
		want.Strategy = "setnx"
		require.Equal(t, servers(t, want), servers(t, Config{URL: url}), url)
	}
	nodes := servers(t, Config{URL: "redlock+redis://:${ODD}@${HOST}1?node=${HOST}2&node=${HOST}3:${PORT}"})
	require.Equal(t, &redis.Options{Network: "tcp", Addr: "h3:1", Password: odd}, nodes[2].single)
	nodes = servers(t, Config{Strategy: "redlock", Nodes: []Node{{Addr: "1"}, {URL: "redis://:${ODD}@h"}, {Addr: "3"}}})
	require.Equal(t, odd, nodes[1].single.Password)
}

func TestUnsetVariableIsRefusedByName(t *testing.T) {
	invalid(t, Config{URL: "setnx+redis://:${REDIS_PASSWORD_UNSET}@h"}, "config url: ", "REDIS_PASSWORD_UNSET", "not set")
	invalid(t, Config{Strategy: "redlock", Nodes: []Node{{URL: "redis://${UNSET}"}}}, "nodes[0].url", "UNSET")
	for _, doc := range []string{`{"password": "${REDIS_PASSWORD_UNSET}"}`, `{"addrs": ["h", "a${REDIS_PASSWORD_UNSET}"]}`,
		`{"nodes": [{"password": "hunter2${REDIS_PASSWORD_UNSET}"}]}`} {
		_, err := ParseJSON([]byte("\n" + doc))
		require.ErrorIs(t, err, locker.ErrInvalid)
		require.ErrorContains(t, err, "REDIS_PASSWORD_UNSET")
		require.ErrorContains(t, err, "line 2")
		require.NotContains(t, err.Error(), password)
	}
}

func TestMalformedReferenceIsRefused(t *testing.T) {
	for _, s := range []string{"${", "${}", "${1A}", "${A B}", "${A-b}", "${A:?hunter2}", "${A:-${B}}", "$${A}${", "hunter2${A"} {
		t.Setenv("A", password)
		_, err := ParseYAML([]byte(`password: '` + s + `'`))
		require.ErrorIs(t, err, locker.ErrInvalid, s)
		require.ErrorContains(t, err, "${NAME:-default}", s)
		require.NotContains(t, err.Error(), password, s)
		invalid(t, Config{URL: "setnx+redis://:" + s + "@h"}, "${NAME:-default}")
	}
}

func TestVariableStaysInItsPlaceInAURL(t *testing.T) {
	t.Setenv("V", "h:1?db=2&hunter2@")
	for _, u := range []string{"setnx+redis://${V}", "setnx+redis://h:${V}", "setnx+redis://u:p@${V}/1"} {
		_, _, err := OpenURL(t.Context(), u)
		require.ErrorIs(t, err, locker.ErrInvalid)
		require.ErrorContains(t, err, "V")
		require.NotContains(t, err.Error(), password)
	}
}

func TestPasswordFromAFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	one, two := file("one", odd+"\n"), file("two", " "+password+"\r\n")
	t.Setenv("SECRETS", dir)
	for _, cfg := range []Config{
		{Addrs: []string{"h"}, PasswordFile: one, Username: "user"},
		{URL: "redis://h", PasswordFile: one, Username: "user"},
		{URL: "redis://user@h?password_file=" + one},
		{URL: "redis://user@h?password_file=${SECRETS}/one"},
	} {
		cfg.Strategy = "setnx"
		require.Equal(t, &redis.Options{Network: "tcp", Addr: "h:6379", Username: "user", Password: odd}, servers(t, cfg)[0].single)
	}
	s := servers(t, Config{Strategy: "setnx", Addrs: []string{"h"}, MasterName: "m", PasswordFile: one, SentinelPasswordFile: two})
	require.Equal(t, []string{odd, " " + password}, []string{s[0].sentinel.Password, s[0].sentinel.SentinelPassword})
	require.Equal(t, s, servers(t, Config{URL: "setnx+redis-sentinel://h?master_name=m&password_file=" + one + "&sentinel_password_file=" + two}))
	nodes := servers(t, Config{Strategy: "redlock", Nodes: []Node{{Addr: "1", PasswordFile: one}, {URL: "redis://2", PasswordFile: two}, {URL: "redis://3?password_file=" + one}}})
	require.Equal(t, odd, nodes[0].single.Password)
	require.Equal(t, " "+password, nodes[1].single.Password)
	require.Equal(t, odd, nodes[2].single.Password)

	for _, n := range servers(t, Config{URL: "redlock+redis://1?node=2&node=3&password_file=" + one}) {
		require.Equal(t, odd, n.single.Password)
	}

	missing, empty := filepath.Join(dir, "missing"), file("empty", "\n")
	cfg, err := ParseYAML([]byte("strategy: setnx\naddrs: [h]\npassword_file: " + missing))
	require.NoError(t, err)
	invalid(t, cfg, "password_file", missing, "no such file")
	_, _, err = Open(t.Context(), cfg)
	require.ErrorIs(t, err, os.ErrNotExist)
	invalid(t, Config{URL: "setnx+redis://h", PasswordFile: empty}, "password_file", empty, "empty")
	invalid(t, Config{URL: "setnx+redis://:p@h", PasswordFile: one}, "password_file", "not together with")
	invalid(t, Config{Strategy: "setnx", Addrs: []string{"h"}, Password: "p", PasswordFile: one}, "password_file", "not together with")
	invalid(t, Config{Strategy: "setnx", Addrs: []string{"h"}, MasterName: "m", SentinelPassword: "p", SentinelPasswordFile: one}, "sentinel_password_file", "not together with")
	invalid(t, Config{Strategy: "setnx", Addrs: []string{"h"}, SentinelPasswordFile: one}, "sentinel_password_file", "master_name")
	invalid(t, Config{Strategy: "redlock", Nodes: []Node{{Addr: "h", Password: "p", PasswordFile: one}}}, "nodes[0].password_file")
	invalid(t, Config{Strategy: "redlock", URL: "redis://h", PasswordFile: missing}, "password_file", missing)
	invalid(t, Config{Strategy: "memory", PasswordFile: one}, "password_file", "for strategies on Redis")
}
