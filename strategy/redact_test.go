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
		Password: password, SentinelPassword: password, TTL: 90 * time.Second, Fencing: new(false), TLS: &TLS{},
		Nodes: []Node{{URL: "redis://:hunter2@h", Password: password, Addr: "h"}},
	}
	shown := []string{cfg.String(), cfg.GoString(), cfg.Nodes[0].String(), cfg.Nodes[0].GoString()}
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
	require.Contains(t, cfg.String(), `"fencing":false`)
	require.Contains(t, cfg.Nodes[0].String(), `"addr":"h"`)
	require.Contains(t, cfg.GoString(), "strategy.Config{")
}

func TestRedactURL(t *testing.T) {
	for raw, want := range map[string]string{
		"":                            "",
		"setnx+redis://h:1/2?db=3":    "setnx+redis://h:1/2?db=3",
		"redis://user:hunter2@h":      "redis://user:xxxxx@h",
		"redis://:hunter2@h":          "redis://:xxxxx@h",
		"redis://hunter2@h":           "redis://xxxxx@h",
		"redis://user:hunter2":        "redis://...",
		"redis://u:hun/hunter2@h":     "redis://...",
		"redis://u:1/hunter2@h":       "redis://...",
		"redis://u:1?hunter2@h":       "redis://...",
		"redis://u:1#hunter2":         "redis://...",
		"redis://u:hunter2@ h":        "redis://...",
		"redis://h?password=hunter2":  "redis://h?password=xxxxx...",
		"redis://h?a=b&Pass=1&hunter": "redis://h?a=b&Pass=xxxxx...",
		"redis://h?p%61ss=hunter2":    "redis://h?p%61ss=xxxxx...",
		"redis:hunter2":               "...",
		"hunter2":                     "...",
		"hunter2 ://h":                "...",
	} {
		require.Equal(t, want, redactURL(raw), raw)
	}
}
