package strategy

import (
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func servers(t *testing.T, cfg Config) []server {
	t.Helper()
	p, err := testRegistry(t).plan(cfg)
	require.NoError(t, err)
	for i := range p.servers {
		p.servers[i].place = ""
	}
	return p.servers
}

// Each deployment by URL, and the same by fields.
func TestURLsAndFieldsAgree(t *testing.T) {
	for url, fields := range map[string]Config{
		"setnx+redis://h:1":                       {Addrs: []string{"h:1"}},
		"setnx+redis://h/3":                       {Addrs: []string{"h"}, DB: 3},
		"setnx+redis://user:p%40ss@[::1]?db=3":    {Addrs: []string{"[::1]"}, DB: 3, Username: "user", Password: "p@ss"},
		"setnx+redis://":                          {Addrs: []string{"localhost:6379"}},
		"setnx+redis://:1":                        {Addrs: []string{"localhost:1"}},
		"SETNX+rediss://:pass@h":                  {Addrs: []string{"h"}, Password: "pass", TLS: &TLS{}},
		"setnx+rediss://h?skip_verify=true":       {Addrs: []string{"h"}, TLS: &TLS{InsecureSkipVerify: true}},
		"setnx+rediss://h?tls_server_name=s&ttl=": {Addrs: []string{"h"}, TLS: &TLS{ServerName: "s"}},
		"setnx+unix:///run/r.sock?db=3":           {UnixSocket: "/run/r.sock", DB: 3},
		"setnx+unix://user:pass@/run/r.sock":      {UnixSocket: "/run/r.sock", Username: "user", Password: "pass"},

		"setnx+redis-cluster://user:pass@h1?addr=h2&addr=h3:1": {Addrs: []string{"h1", "h2:6379", "h3:1"}, Cluster: true, Username: "user", Password: "pass"},
		"setnx+redis-cluster://h1:1/0":                         {Addrs: []string{"h1:1"}, Cluster: true},
		"setnx+rediss-cluster://h1?addr=h2&skip_verify=1":      {Addrs: []string{"h1", "h2"}, Cluster: true, TLS: &TLS{InsecureSkipVerify: true}},

		"setnx+redis-sentinel://h1?addr=h2:1&master_name=m": {Addrs: []string{"h1:26379", "h2:1"}, MasterName: "m"},
		"setnx+rediss-sentinel://su:sp@h1/3?master_name=m&username=user&password=pass": {
			Addrs: []string{"h1"}, MasterName: "m", DB: 3, TLS: &TLS{},
			Username: "user", Password: "pass", SentinelUsername: "su", SentinelPassword: "sp",
		},
	} {
		t.Run(url, func(t *testing.T) {
			fields.Strategy = "setnx"
			require.Equal(t, servers(t, fields), servers(t, Config{URL: url}))
		})
	}
}

func TestCredentialsBesideURL(t *testing.T) {
	cfg := Config{Username: "user", Password: "pass", TLS: &TLS{ServerName: "s"}}
	for url, whole := range map[string]string{
		"setnx+rediss://h":         "setnx+rediss://user:pass@h?tls_server_name=s",
		"setnx+rediss-cluster://h": "setnx+rediss-cluster://user:pass@h?tls_server_name=s",
		"setnx+rediss-sentinel://h?master_name=m": "setnx+rediss-sentinel://h?master_name=m&username=user&password=pass&" +
			"tls_server_name=s",
		"redlock+rediss://h1?node=h2&node=h3": "redlock+rediss://user:pass@h1?node=h2&node=h3&tls_server_name=s",
	} {
		cfg.URL = url
		require.Equal(t, servers(t, Config{URL: whole}), servers(t, cfg), url)
	}
	require.Equal(t,
		servers(t, Config{URL: "setnx+redis-sentinel://su:sp@h?master_name=m"}),
		servers(t, Config{URL: "setnx+redis-sentinel://h?master_name=m", SentinelUsername: "su", SentinelPassword: "sp"}))
}

func TestNodes(t *testing.T) {
	byURL := servers(t, Config{URL: "redlock+rediss://user:pass@h1:1/2?node=h2&node=[::1]:3&protocol=2"})
	require.Len(t, byURL, 3)
	for i, addr := range []string{"h1:1", "h2:6379", "[::1]:3"} {
		o := byURL[i].single
		require.Equal(t, addr, o.Addr)
		require.Equal(t, strings.Trim(addr[:strings.LastIndex(addr, ":")], "[]"), o.TLSConfig.ServerName, "each has a certificate of its own")
		require.Equal(t, []any{"user", "pass", 2, 2}, []any{o.Username, o.Password, o.DB, o.Protocol})
	}
	bySockets := servers(t, Config{URL: "redlock+unix:///1?node=/2&node=/3"})
	byNodes := servers(t, Config{Strategy: "redlock", Nodes: []Node{{UnixSocket: "/1"}, {URL: "unix:///2"}, {UnixSocket: "/3"}}})
	require.Equal(t, bySockets, byNodes)
	byNodes = servers(t, Config{Strategy: "redlock", Nodes: []Node{
		{URL: "redis://:p1@h1/1", TLS: nil}, {Addr: "h2", Password: "p2", TLS: &TLS{ServerName: "s"}}, {URL: "rediss://h3?tls_server_name=s", Password: "p3"},
	}})
	require.Equal(t, "p1 p2 p3", byNodes[0].single.Password+" "+byNodes[1].single.Password+" "+byNodes[2].single.Password)
	require.Nil(t, byNodes[0].single.TLSConfig)
	require.Equal(t, "s", byNodes[1].single.TLSConfig.ServerName)
	require.Equal(t, "s", byNodes[2].single.TLSConfig.ServerName)
}

// The names listed in errors are those go-redis takes.
func TestGoRedisParameters(t *testing.T) {
	values := map[string]string{"addr": "h:1", "master_name": "m", "dial_timeout": "1", "read_timeout": "1", "write_timeout": "1"}
	for _, scheme := range schemes {
		_, kind, _ := strings.Cut(scheme, "-")
		for name := range strings.FieldsSeq(tuningParams + " " + kindParams[kind]) {
			url := "setnx+" + scheme + "://h"
			if scheme == "unix" {
				url = "setnx+unix:///s"
			}
			value := values[name]
			if value == "" {
				value = "0"
			}
			url += "?" + name + "=" + value
			if kind == "sentinel" && name != "master_name" {
				url += "&master_name=m"
			}
			if name == "username" {
				url += "&password=p"
			}
			if !strings.HasSuffix(name, "_file") {
				servers(t, Config{URL: url})
			}
		}
	}
	s := servers(t, Config{URL: "setnx+redis://h?dial_timeout=3&ttl=5s&client_name=a%40b"})
	require.Equal(t, &redis.Options{Network: "tcp", Addr: "h:6379", DialTimeout: 3e9, ClientName: "a@b"}, s[0].single)
}

// With dial_timeout=0 no connection would succeed, and with read_timeout=0 a question to a frozen Sentinel would not end.
func TestTimeoutsAreAboveZero(t *testing.T) {
	for param, bases := range map[string][]string{
		"dial_timeout":  {"redis://h?", "rediss://h?", "unix:///s?", "redis-cluster://h?", "redis-sentinel://h?master_name=m&"},
		"read_timeout":  {"redis-sentinel://h?master_name=m&"},
		"write_timeout": {"redis-sentinel://h?master_name=m&"},
	} {
		for _, base := range bases {
			for _, value := range []string{"0", "-1", "0s", "-2s"} {
				_, err := testRegistry(t).plan(Config{URL: "setnx+" + base + param + "=" + value})
				require.ErrorIs(t, err, locker.ErrInvalid, base)
				require.ErrorContains(t, err, param+" above 0")
			}
		}
	}
}

func TestTimeoutsOfSentinels(t *testing.T) {
	const url = "setnx+redis-sentinel://h?master_name=m"
	o := servers(t, Config{URL: url})[0].sentinel
	require.Equal(t, []any{time.Second, time.Second, 2 * time.Second, 1, -1}, []any{o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.DialerRetries, o.MaxRetries})
	o = servers(t, Config{URL: url + "&read_timeout=2s&write_timeout=3s&dial_timeout=4s&dialer_retries=5&max_retries=6"})[0].sentinel
	require.Equal(t, []any{2 * time.Second, 3 * time.Second, 4 * time.Second, 5, 6}, []any{o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.DialerRetries, o.MaxRetries})
}
