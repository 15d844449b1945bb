// Package strategy chooses a strategy by configuration, so that a program holds
// nothing but a locker.Locker and a URL or a file:
//
//	locks, release, err := strategy.OpenURL(ctx, os.Getenv("LOCKS"))
//	if err != nil {
//		return err // it names what is wrong and what is allowed
//	}
//	defer release()
//
// [Open] takes a [Config], which [Load] reads from JSON or YAML; [Register] adds
// the strategies of others. [Set] and its like are for google/wire. It is
// the only package that knows all strategies: a program that has made its choice
// imports the strategy's own package, and links no other.
//
// # URLs
//
// A URL is <strategy>+<scheme>://..., or memory://name. The strategies on one Redis
// deployment (setnx, hashreentrant, blpop) take each of the schemes; those on
// several independent servers (redlock) take redis, rediss and unix.
//
//	redis://[user:password@]host[:6379][/db]       one server
//	rediss://                                      the same by TLS
//	unix://[user:password@]/path/to.sock[?db=n]    one server, by its socket
//	redis-cluster://host[:6379]?addr=host2         a cluster, of which these are some nodes
//	rediss-cluster://                              the same by TLS
//	redis-sentinel://host[:26379][/db]?master_name=m&addr=host2
//	                                               the master that Sentinels name. The user and password before
//	                                               the @ are the Sentinels', username= and password= are Redis's
//	rediss-sentinel://                             the same by TLS, Sentinels included
//	memory://name                                  in this process: the same name is the same store
//	redlock+redis://host1?node=host2&node=host3    an odd number of independent servers, at least 3, which
//	                                               share the rest of the URL
//
// In user names, passwords and parameters / ? # [ ] @ & % and blanks are escaped,
// as in %2F. A URL with a bare @ behind its host, or with a #, is refused: it looks
// like one whose password lacks its escapes.
//
// # Parameters
//
// Those of every URL are the fields of [Config] about locks, with the same names.
// Each may be given once; blank is the default.
//
//	ttl=30s  wait=5s  prefix=app:
//	renewal=on|off  renew_interval=10s  max_renewals=10  max_hold=5m
//	fencing=on|off
//	replica_acks=1  replica_acks_timeout=1s        not memory, not redlock
//
// With the schemes that begin with rediss:
//
//	tls_ca_file=  tls_cert_file=  tls_key_file=    files in PEM
//	tls_server_name=                               default the host of the URL
//	skip_verify=true                               any certificate will do
//
// Everything else is go-redis's: pool_size, read_timeout and the others of
// redis.ParseURL, redis.ParseClusterURL and redis.ParseFailoverURL. Those by which it
// would read from replicas are refused, for locks are taken on masters.
//
// # Errors
//
// A wrong configuration fails with locker.ErrInvalid. The error names the
// field, its value and what is allowed; for unknown strategies, schemes,
// parameters and keys, what there is. No error and no printed [Config] shows a
// password; a URL that cannot be parsed is not shown at all.
package strategy
