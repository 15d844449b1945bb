package strategy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestPasswordsAreNeverShown(t *testing.T) {
	cfg := Config{
		Strategy: "setnx", URL: "redis-sentinel://user:hunter2@h?password=hunter2&master_name=m", Username: "user",
		Password: password, SentinelPassword: password, TTL: 90 * time.Second, Fencing: new(false), HandOver: new(false), TLS: &TLS{},
		Nodes: []Node{{URL: "redis://:hunter2@h", Password: password, Addr: "h"}},
	}
	shown := []string{cfg.String(), cfg.Nodes[0].String()}
	type Program struct{ Locks Config }
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
		for _, v := range []any{cfg, &cfg, Program{cfg}, []Config{cfg}, cfg.Nodes, cfg.Nodes[0], map[string]Config{"x": cfg}} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
	}
	for _, v := range []any{cfg, &cfg, Program{cfg}, cfg.Nodes, cfg.Nodes[0]} {
		for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
			b, err := marshal(v)
			require.NoError(t, err)
			shown = append(shown, string(b))
		}
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("text", "v", v)
		slog.New(slog.NewJSONHandler(&b, nil)).Info("json", "v", v)
		shown = append(shown, b.String())
	}
	for _, s := range shown {
		require.NotContains(t, s, password)
		require.Contains(t, s, hidden, "that there is one is no secret")
	}
	require.Contains(t, cfg.String(), `"ttl":"1m30s"`)
	require.Contains(t, cfg.String(), `"fencing":false,"hand_over":false`)
	require.Contains(t, cfg.Nodes[0].String(), `"addr":"h"`)
}

func TestRedactURL(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                "",
		"setnx+redis://h:1/2?db=3&ttl=5s": "setnx+redis://h:1/2?db=3&ttl=5s",
		"redis://user:hunter2@h":          "redis://xxxxx@h",
		"redis://:hunter2@h":              "redis://xxxxx@h",
		"redis://hunter2@h":               "redis://xxxxx@h",
		"unix://u:hunter2@/s":             "unix://xxxxx@/s",
		"redis://user:hunter2":            "redis://xxxxx",
		"redis://u:hun/hunter2@h":         "redis://xxxxx",
		"redis://u:1/hunter2@h":           "redis://xxxxx",
		"redis://u:1?hunter2@h":           "redis://xxxxx",
		"redis://u:1#hunter2":             "redis://xxxxx",
		"redis://u:hunter2@ h":            "redis://xxxxx",
		"redis://h?password=hunter2":      "redis://h?password=xxxxx",
		"redis://h?pwd=hunter2":           "redis://h?pwd=xxxxx",
		"redis://h?ttl=5s&Pass=1&hunter2": "redis://h?ttl=5s&Pass=xxxxx",
		"redis://h?p%61ssword=hunter2":    "redis://h?password=xxxxx",
		"redis://h?p%zz=hunter2":          "redis://h?=xxxxx",
		"redis://h?node=u%3Ahunter2%40h":  "redis://h?node=xxxxx",
		"redis:hunter2":                   "xxxxx",
		"hunter2":                         "xxxxx",
		"hunter2 ://h":                    "xxxxx",

		// With references to variables.
		"rediss://locks:${REDIS_PASSWORD}@redis.example:6380/0":       "rediss://xxxxx@redis.example:6380/0",
		"setnx+redis://${USER}:a$$b@${HOST}:${PORT}/${DB}?ttl=${TTL}": "setnx+redis://xxxxx@${HOST}:${PORT}/${DB}?ttl=${TTL}",
		"redis://h?ttl=${TTL}&password=${PASSWORD}&wait=${WAIT}":      "redis://h?ttl=${TTL}&password=xxxxx",
		"redis://${HOST:-hunter2}/$$":                                 "redis://${HOST:-xxxxx}/$$",
		"redis://u:1/${REST}@h":                                       "redis://xxxxx",
		"redis://u:hun${/ter2@h":                                      "redis://xxxxx",
		"redis://900000900000@${HOST}":                                "redis://xxxxx@${HOST}",
		"redis://90000090000000/${DB}":                                "redis://90000090000000/${DB}",
		"${REDIS_URL}":                                                "xxxxx",
		"setnx+${REDIS_URL}?password=hunter2":                         "xxxxx",
	} {
		require.Equal(t, want, redactURL(raw), raw)
	}
}
