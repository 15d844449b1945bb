package register_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/mysql/register"
)

// A server that does not answer is no reason to fail.
func TestOpen(t *testing.T) {
	for _, url := range []string{
		"mysql://app@localhost:1/app?ttl=10s&wait=1s&prefix=p:&table=app.locks&max_conns=2",
		"mariadb://app:se%2Fc%40r%3Aet@[::1]/app?tls=skip-verify&timeout=1s&readTimeout=1s",
		"mysql+mariadb://app@localhost/app?tls=true",
		"mysql://app@/app?socket=/nowhere/sock",
		"mysql://app@localhost?table=app.locks",
		"mysql://app@localhost/app?tls_server_name=db",
	} {
		_, release, err := strategy.OpenURL(t.Context(), url)
		require.NoError(t, err, url)
		release()
	}
	require.Subset(t, strategy.Names(), []string{"mysql", "mariadb"})
}

func TestOpenRefuses(t *testing.T) {
	for url, word := range map[string]string{
		"mysql://app:secret@h/app?table=a.b.c":              "a.b.c",
		"mysql://app:secret@h/app?max_conns=1":              "2 to 1000",
		"mysql://app:secret@h/app?max_conns=many":           "many",
		"mysql://app:secret@h/app?tls=perhaps":              "perhaps",
		"mysql://app:secret@h/app?tls=false&tls_ca_file=/x": "tls=true",
		"mysql://app:secret@h/app?tls_ca_file=/nowhere":     "tls_ca_file",
		"mysql://app:secret@h/app?tls_ca_file=register.go":  "PEM",
		"mysql://app:secret@h/app?tls_cert_file=/nowhere":   "tls_cert_file",
		"mysql://app:secret@h/app?timeout=x":                "timeout",
		"mysql://app:secret@h/app?autocommit=0":             "unknown parameter autocommit",
		"mysql://app:secret@h/app?tabel=x":                  "unknown parameter tabel",
		"mysql://app:secret@h/app?socket=/x":                "got both",
		"mysql://app:secret@h":                              "want a database",
		"mysql:///app":                                      "want a host",
		"mysql://app:secret@h1,h2/app":                      `one host with a port of 1 to 65535, got "h1,h2"`,
		"mysql://app:secret@h1:3306,h2:3306/app":            `got "h1:3306,h2:3306"`,
		"mysql://app:secret@h:66666/app":                    `got "h:66666"`,
		"mysql://app:secret@h/app?replica_acks=1":           "replica_acks",
		"mysql://app:secret@h/app?ttl=1ms":                  "ttl",
		"mysql+redis://app:secret@h/app":                    "mysql",
	} {
		_, _, err := strategy.OpenURL(t.Context(), url)
		require.ErrorIs(t, err, locker.ErrInvalid, url)
		require.ErrorContains(t, err, word)
		require.NotContains(t, err.Error(), "secret")
	}
	_, _, err := strategy.Open(t.Context(), strategy.Config{Strategy: "mysql"})
	require.ErrorIs(t, err, locker.ErrInvalid)
}
