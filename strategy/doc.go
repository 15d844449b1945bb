// Package strategy chooses a strategy by configuration, so that a program holds
// nothing but a locker.Locker and a URL or a file:
//
//	locks, release, err := strategy.OpenURL(ctx, os.Getenv("LOCKER_URL"))
//	if err != nil {
//		return err // it names what is wrong and what is allowed
//	}
//	defer release()
//
// [Open] takes a [Config], which [Load] reads from JSON or YAML; [Register] adds
// the strategies of others. Package wireset has provider sets for google/wire. Package strategy links
// memory and all strategies on Redis: a program that has made its choice
// imports the package of its strategy instead.
//
// PostgreSQL, MySQL and etcd are modules of their own. Import one of these for its effect, and Open knows its URLs:
//
//	import _ "github.com/distlock/locker/strategy/postgres/register" // postgres://user:pass@h:5432/db
//	import _ "github.com/distlock/locker/strategy/mysql/register"    // mysql://user:pass@h:3306/db
//	import _ "github.com/distlock/locker/strategy/etcd/register"     // etcd://h1:2379,h2:2379
//
// # URLs
//
// For a store in this process a URL is memory://name, and for Redis it is
// <strategy>+<scheme>://... The strategies on one Redis deployment (setnx, hashreentrant, blpop)
// take each of the schemes; those on several independent servers (redlock) take redis, rediss and
// unix.
//
//	redis://[user:password@]host[:6379][/db]       one server
//	rediss://                                      one server, by TLS
//	unix://[user:password@]/path/to.sock[?db=n]    one server, by its socket
//	redis-cluster://host[:6379]?addr=host2         a cluster, of which these are some nodes
//	rediss-cluster://                              a cluster, by TLS
//	redis-sentinel://host[:26379][/db]?master_name=m&addr=host2
//	                                               the master that Sentinels name. The user and password before
//	                                               the @ are the Sentinels', username= and password= are Redis's
//	rediss-sentinel://                             that master by TLS, and the Sentinels by TLS
//	memory://name                                  in this process: each name is one store
//	redlock+redis://host1?node=host2&node=host3    an odd number of independent servers, at least 3, which
//	                                               share the rest of the URL
//
// In user names, passwords and parameters, escape blanks and the characters / ? # [ ] @ & % (the
// escape of / is %2F). A URL with a bare @ behind its host, or with a #, is refused: it looks
// like one whose password lacks its escapes.
//
// No two nodes of redlock may be one server. Open compares their addresses in one spelling, with
// localhost, 127.0.0.1 and [::1] as one, and then what the names resolve to. A name that does not
// resolve within a second is accepted. If two names of one server pass both comparisons, redlock
// refuses them once it is connected, since it gets the same run id by both names.
//
// # Parameters
//
// The parameters of every URL are the fields of [Config] about locks, with the
// same names. No parameter but addr and node may be given twice, nor a database
// by the path and by db; blank is the default.
//
//	ttl=30s  wait=5s  prefix=app:                  wait=0s is one attempt; left out, Lock waits until its context is done,
//	                                               or an outage has lasted for max(ttl, 15s)
//	renewal=on|off  renew_interval=10s  max_renewals=10  max_hold=5m  margin=1s
//	fencing=on|off  hand_over=on|off  sticky=500ms  sticky: not redlock, etcd, mysql
//	loss_detection=on|off                          not redlock, postgres, mysql
//	replica_acks=1  replica_acks_timeout=1s        setnx, hashreentrant and blpop only
//
// A prefix does not begin with "locker:", as this library's own keys do.
// With every scheme of Redis:
//
//	password_file=  sentinel_password_file=        files with the passwords; Open reads them
//
// With the schemes that begin with rediss:
//
//	tls_ca_file=  tls_cert_file=  tls_key_file=    files in PEM
//	tls_server_name=                               default the host of the URL
//	skip_verify=true                               any certificate will do
//
// With every scheme of Redis, go-redis's parameters for connections:
//
//	client_name=app                                the name in CLIENT LIST is app:locker
//	dial_timeout=1s                                above 0; default 2s; 2s to 5s count as 2s, since 5s is go-redis's default
//	conn_max_idle_time=  conn_max_lifetime=  conn_max_lifetime_jitter=
//	pool_fifo=  protocol=                          2 or 3
//
// With some schemes only:
//
//	db=  idle_timeout=  max_conn_age=              redis, rediss and unix; the last two are conn_max_idle_time and conn_max_lifetime
//	max_redirects=                                 of a cluster
//	db=  disableIdentity=  identitySuffix=         with Sentinels
//
// With Sentinels, these parameters apply to commands to the Sentinels, and not to commands on locks:
// context_timeout_enabled, dialer_retries, dialer_retry_timeout, max_retries,
// max_retry_backoff, min_retry_backoff, read_timeout and write_timeout. Each question to a Sentinel is sent
// once by default, and times out after 1 s. A connection to a Sentinel or to the master times out after 2 s (dial_timeout).
//
// A parameter of go-redis that changes nothing about locks is refused, and the error
// says why. A Locker has connections of its own, 20 to a server at most, and opens
// them as it needs them: there is no pool_size and no min_idle_conns. A command may take 2 s,
// or the ReadTimeout of a given client if that is above 5 s: read_timeout and write_timeout change
// nothing. go-redis sends each command once: max_retries changes nothing. Parameters by which
// go-redis would read from replicas are refused, too, since locks are taken on masters.
//
// # Documents
//
// A document is one YAML mapping or JSON object with the fields of [Config]:
//
//	strategy: redlock
//	ttl: 10s
//	nodes:
//	- {addr: "redis-1:6379", username: locks, password_file: /run/secrets/redis-1}
//	- {addr: "redis-2:6379", username: locks, password: "${REDIS_2_PASSWORD}"}
//	- {url: "rediss://locks:${REDIS_3_PASSWORD}@redis-3"}
//
// # Environment
//
// In every value of a document, and in every URL, ${NAME} is the environment
// variable NAME, ${NAME:-default} is default where NAME is unset or empty, and $$
// is $, as in Docker Compose. Any other $ is itself. A variable that is not set and
// has no default is an error, as is any other text behind ${.
//
// A variable is one value, whatever is in it: a password with @ or & needs no escapes in a
// variable, also if a URL names that variable. Only a variable at the beginning of a URL, or
// behind the strategy and the +, may hold more of the URL: ${REDIS_URL} or
// setnx+${REDIS_URL}?ttl=10s. Such a value needs the escapes of a URL. Values are not searched
// for further variables. The fields of a Config made in Go, except the URLs, are taken as they
// are.
//
// # Errors
//
// A wrong configuration fails with locker.ErrInvalid. The error names the
// field, its value and the values allowed; for unknown strategies, schemes, parameters and
// keys it lists the known ones; and it has the line of a document.
//
// No error and no printed, logged or marshalled [Config] shows a credential, be it a
// user name or a password. Of a URL they show the scheme, the host, the path, and
// the parameters before the first one that may be a credential. Of a URL that cannot be parsed they show
// the scheme only. They show the name of a variable, and not its value. They show a value of a document
// as it is written there.
package strategy
