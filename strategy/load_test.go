package strategy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const everythingYAML = `
strategy: redlock
url: redis://h
addrs: [h1:1, 'h2:2']
master_name: 5 # a string without quotes
cluster: true
unix_socket: /s
db: 3
username: on
password: 0123
sentinel_username: su
sentinel_password: "sp"
password_file: pf
sentinel_password_file: spf
tls: &tls
  ca_file: ca
  cert_file: cert
  key_file: key
  server_name: name
  insecure_skip_verify: false
nodes:
- url: redis://h1
- addr: h2
  db: 1
  username: u
  password: p
  tls: *tls
- unix_socket: /s
  password_file: npf
ttl: 90s
wait: 0
renewal: off
renew_interval: 1.5s
max_renewals: 4
max_hold: 1h
margin: 2s
sticky: 250ms
prefix: 'app:'
fencing: true
hand_over: false
replica_acks: 2
replica_acks_timeout: 500ms
`

const everythingJSON = `{
	"strategy": "redlock", "url": "redis://h", "addrs": ["h1:1", "h2:2"], "master_name": "5", "cluster": true,
	"unix_socket": "/s", "db": 3, "username": "on", "password": "0123", "sentinel_username": "su",
	"sentinel_password": "sp", "password_file": "pf", "sentinel_password_file": "spf",
	"tls": {"ca_file": "ca", "cert_file": "cert", "key_file": "key", "server_name": "name", "insecure_skip_verify": false},
	"nodes": [
		{"url": "redis://h1"},
		{"addr": "h2", "db": 1, "username": "u", "password": "p",
			"tls": {"ca_file": "ca", "cert_file": "cert", "key_file": "key", "server_name": "name"}},
		{"unix_socket": "/s", "password_file": "npf"}
	],
	"ttl": "90s", "wait": "0s", "renewal": false, "renew_interval": "1.5s", "max_renewals": 4, "max_hold": "1h", "margin": "2s", "sticky": "250ms",
	"prefix": "app:", "fencing": true, "hand_over": false, "replica_acks": 2, "replica_acks_timeout": "500ms"
}`

func everything() Config {
	tls := TLS{CAFile: "ca", CertFile: "cert", KeyFile: "key", ServerName: "name"}
	return Config{
		Strategy: "redlock", URL: "redis://h", Addrs: []string{"h1:1", "h2:2"}, MasterName: "5", Cluster: true,
		UnixSocket: "/s", DB: 3, Username: "on", Password: "0123", SentinelUsername: "su", SentinelPassword: "sp", PasswordFile: "pf", SentinelPasswordFile: "spf", TLS: &tls,
		Nodes: []Node{{URL: "redis://h1"}, {Addr: "h2", DB: 1, Username: "u", Password: "p", TLS: &tls}, {UnixSocket: "/s", PasswordFile: "npf"}},
		TTL:   90 * time.Second, Wait: NoWait, Renewal: new(false), RenewInterval: 1500 * time.Millisecond, MaxRenewals: 4,
		MaxHold: time.Hour, Margin: 2 * time.Second, Sticky: 250 * time.Millisecond, Prefix: "app:", Fencing: new(true), HandOver: new(false), ReplicaAcks: 2, ReplicaAcksTimeout: 500 * time.Millisecond,
	}
}

func TestEveryField(t *testing.T) {
	fromYAML, err := ParseYAML([]byte(everythingYAML))
	require.NoError(t, err)
	require.Equal(t, everything(), fromYAML)
	fromJSON, err := ParseJSON([]byte(everythingJSON))
	require.NoError(t, err)
	require.Equal(t, everything(), fromJSON)

	for _, ext := range []string{"json", "yaml", "yml", "JSON"} {
		path := filepath.Join(t.TempDir(), "locks."+ext)
		content := everythingYAML
		if ext == "json" || ext == "JSON" {
			content = everythingJSON
		}
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		cfg, err := Load(path)
		require.NoError(t, err)
		require.Equal(t, everything(), cfg)
	}
}

func TestJSONStringsWithEscapes(t *testing.T) {
	const doc = `{"url": "setnx+redis:\/\/h", "prefix": "\ud83d\ude00\u0000\"\\\n\t'é", "password": "a: {b}, [c] #d"}`
	cfg, err := ParseJSON([]byte(doc))
	require.NoError(t, err)
	require.Equal(t, Config{URL: "setnx+redis://h", Prefix: "\U0001f600\x00\"\\\n\t'é", Password: "a: {b}, [c] #d"}, cfg)
	_, err = ParseJSON([]byte("{\n\"prefix\": \"\\/\",\n\"tll\": \"1s\"}"))
	require.ErrorContains(t, err, "line 3")
	_, err = ParseJSON([]byte("{\"password\": \"\xff\"}"))
	require.ErrorContains(t, err, "not UTF-8")
}

// A marshalled Config is read again, except for the passwords.
func TestMarshalledIsRead(t *testing.T) {
	want := everything()
	want.Username, want.Password, want.Nodes[1].Username, want.Nodes[1].Password = hidden, hidden, hidden, hidden
	want.SentinelUsername, want.SentinelPassword = hidden, hidden
	given := everything()
	given.Client, given.Clients = nowhere(t), []redis.UniversalClient{nil}

	b, err := json.Marshal(given)
	require.NoError(t, err)
	cfg, err := ParseJSON(b)
	require.NoError(t, err)
	require.Equal(t, want, cfg)
	b, err = yaml.Marshal(given)
	require.NoError(t, err)
	cfg, err = ParseYAML(b)
	require.NoError(t, err)
	require.Equal(t, want, cfg)
}

// A Config within a program's own configuration is read as strictly.
func TestWithinALargerDocument(t *testing.T) {
	type program struct {
		Port  int
		Locks Config
	}
	for name, unmarshal := range map[string]func(string, any) error{
		"json": func(locks string, p any) error {
			return json.Unmarshal([]byte(`{"port": 1, "locks": `+locks+`}`), p)
		},
		"yaml": func(locks string, p any) error { // of which JSON is a part
			return yaml.Unmarshal([]byte(`{"port": 1, "locks": `+locks+`}`), p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p program
			require.NoError(t, unmarshal(`{"strategy": "setnx", "ttl": "90s"}`, &p))
			require.Equal(t, program{1, Config{Strategy: "setnx", TTL: 90 * time.Second}}, p)
			require.ErrorContains(t, unmarshal(`{"tll": "90s"}`, &p), `config key "tll" (line 1): unknown; there are addrs`)
			require.NoError(t, unmarshal(`null`, &p))
			require.Equal(t, "setnx", p.Locks.Strategy, "null leaves it as it is")
		})
	}
}
