package strategy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/distlock/locker"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// secret is too odd to stand in an error by chance.
const secret = "s3cr3T"

func FuzzOpenURLParse(f *testing.F) {
	for _, s := range [][3]string{
		{"setnx+redis", "", "h:6379/0?ttl=30s&wait=5s&prefix=app:"},
		{"setnx+rediss", "/", "h?tls_server_name=s&skip_verify=1"},
		{"hashreentrant+redis-cluster", "?", "h1?addr=h2:1&read_only=0"},
		{"setnx+rediss-sentinel", "#", "h1/3?master_name=m&addr=h2&password=x"},
		{"setnx+unix", "@", "/run/redis.sock?db=1"},
		{"redlock+redis", "%", "h1?node=h2&node=h3"},
		{"memory", ":", "name?fencing=off&max_hold=1s"},
		{"acks+redis", "1", "h?replica_acks=1&pool_fifo=-1"},
		{"", "", ""},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, scheme, odd, rest string) {
		if strings.Contains(scheme+rest, secret) || strings.Contains(scheme, "://") || strings.Contains(rest, "@") {
			t.Skip("not the URL we mean to make")
		}
		if strings.Contains(rest, "_file") {
			t.Skip("it might be a device")
		}
		and := "?"
		if strings.Contains(rest, "?") {
			and = "&"
		}
		r := testRegistry(t)
		for _, raw := range []string{
			scheme + "://" + rest,
			// The password as it is, and as it should be.
			scheme + "://user:" + odd + secret + "@" + rest,
			scheme + "://user:" + secret + odd + "@" + rest,
			scheme + "://" + url.UserPassword("user", odd+secret).String() + "@" + rest,
			scheme + "://" + rest + and + "password=" + url.QueryEscape(secret+odd),
		} {
			_, err := r.plan(Config{URL: raw})
			require.NotContains(t, redactURL(raw), secret)
			require.NotContains(t, fmt.Sprint(Config{URL: raw}), secret)
			if err != nil {
				require.ErrorIs(t, err, locker.ErrInvalid)
				require.NotContains(t, err.Error(), secret)
				continue
			}
		}
	})
}

func FuzzParseYAML(f *testing.F) {
	f.Add([]byte(everythingYAML))
	f.Add([]byte("a: &a [*a]\nb: {<<: *a}"))
	fuzzParse(f, ParseYAML)
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(everythingJSON))
	f.Add([]byte(`{"ttl":"1s","ttl":null,"nodes":[{}]}`))
	fuzzParse(f, ParseJSON)
}

func fuzzParse(f *testing.F, parse func([]byte) (Config, error)) {
	f.Helper()
	f.Add([]byte(`{"strategy": "setnx", "password": "s3cr3T"}`))
	f.Add([]byte(`{"url": "setnx+redis://u:s3cr3T@h?ttl=1s", "nodes": [{"password": "s3cr3T"}]}`))
	f.Add([]byte(`{"password": s3cr3T`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := parse(data)
		if err != nil {
			require.ErrorIs(t, err, locker.ErrInvalid)
			return
		}
		shown := cfg.String()
		for _, p := range []string{cfg.Password, cfg.SentinelPassword} {
			if strings.Contains(p, secret) && !strings.Contains(withoutPasswords(cfg), secret) {
				require.NotContains(t, shown, secret)
			}
		}
		if !strings.Contains(string(data), "_file") { // it might be a device
			_, _ = testRegistry(t).plan(cfg)
		}

		if strings.Contains(shown, "$") { // would be taken for a variable
			return
		}
		// The text shown is a Config, and that Config is shown the same.
		again, err := ParseJSON([]byte(shown))
		require.NoError(t, err)
		require.Equal(t, shown, again.String())
	})
}

// FuzzSecretsAreNeverShown puts a secret where credentials stand, and where they
// are put by mistake.
func FuzzSecretsAreNeverShown(f *testing.F) {
	for _, name := range []string{"pwd", "auth", "auth_token", "passwd", "token", "secret", "key", "AUTH", "password", "username", "x"} {
		f.Add(name, "", "")
	}
	for _, name := range []string{"auth_token", "password"} {
		f.Add(name, "/", "&ttl=")
		f.Add(name, "?#@", "%zz")
		f.Add(name, "${", "$$")
		f.Add(name, "'", "\"\n")
	}
	plain := regexp.MustCompile(`^[A-Za-z0-9_-]{1,20}$`)
	f.Fuzz(func(t *testing.T, name, before, after string) {
		_, field := fieldsOf(reflect.ValueOf(Config{}))[name]
		if strings.Contains(name, secret) || !plain.MatchString(name) || isShown(name) || field && !isCredential(name) || strings.ContainsAny(before+after, "\x00") {
			t.Skip()
		}
		value := before + secret + after
		t.Setenv("V", value)
		quoted, err := json.Marshal(value)
		require.NoError(t, err)
		doc := strings.ReplaceAll(string(quoted), "$", "$$")

		r := testRegistry(t)
		check := func(cfg Config, err error) {
			if err == nil {
				var b bytes.Buffer
				slog.New(slog.NewTextHandler(&b, nil)).Info("", "cfg", cfg)
				slog.New(slog.NewJSONHandler(&b, nil)).Info("", "cfg", &cfg)
				y, _ := yaml.Marshal(cfg)
				require.NotContains(t, fmt.Sprintf("%v %+v %#v %s %x", cfg, &cfg, cfg, cfg, cfg)+b.String()+string(y), secret)
				_, err = r.plan(cfg)
			}
			if err != nil {
				require.ErrorIs(t, err, locker.ErrInvalid)
				require.NotContains(t, err.Error(), secret)
			}
		}
		for _, at := range []string{"setnx+redis", "setnx+redis-sentinel", "memory", "redlock+rediss", "nix+redis", "nix"} {
			for _, v := range []string{value, url.QueryEscape(value), "${V}"} {
				check(Config{URL: at + "://u:" + v + "@h/x?ttl=5"}, nil)
				check(Config{URL: at + "://" + v + "@h"}, nil)
				check(Config{URL: at + "://h?ttl=5s&" + name + "=" + v}, nil)
				check(Config{URL: at + "://h?" + name + "=" + v + "&tll=5s&prefix=" + v}, nil)
				check(Config{Strategy: "redlock", Nodes: []Node{{URL: at + "://:" + v + "@h?" + name + "=" + v}}}, nil)
			}
		}
		check(Config{Strategy: "setnx", Password: value, SentinelPassword: value, Addrs: []string{"h:x"}}, nil)
		check(Config{Strategy: "redlock", Password: value, Nodes: []Node{{Password: value}, {Addr: "h", DB: -1, Password: value}}}, nil)
		for _, v := range []string{doc, `"${V}"`, `"${V}${`, `[` + doc + `]`, `{"x": ` + doc + `}`, `!x ` + doc, doc + doc, `*` + secret, `"` + secret, `'` + secret} {
			for _, field := range []string{"password: ", "sentinel_password: ", "nodes: [{addr: h, password: ", "tls: {" + name + ": ", name + ": "} {
				text := "ttl: 5s\n" + field + v + strings.Repeat("}", strings.Count(field, "{")) + strings.Repeat("]", strings.Count(field, "["))
				check(ParseYAML([]byte(text)))
				check(ParseJSON([]byte("{" + text + "}")))
			}
		}
	})
}

// withoutPasswords returns the text of cfg without its passwords.
func withoutPasswords(cfg Config) string {
	cfg.Password, cfg.SentinelPassword, cfg.URL = "", "", ""
	for i := range cfg.Nodes {
		cfg.Nodes[i].Password, cfg.Nodes[i].URL = "", ""
	}
	return fmt.Sprintf("%+v", cfg)
}
