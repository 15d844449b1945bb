package strategy

import (
	"net/url"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// NoWait as the Wait of a [Config] is one attempt, which documents and URLs write
// as wait: 0s.
const NoWait time.Duration = -1

// Config names the strategy, where its Redis is, and the defaults of its Locker. What is left out has its default.
// The place is one of URL, Addrs, UnixSocket and Client, or, for a strategy on several servers such as redlock, one of
// URL, Nodes and Clients.
//
// It is written in JSON or YAML with the names of the tags and durations such as
// "30s"; see [Load]. Within a larger document, as a field, encoding/json and
// go.yaml.in/yaml/v3 decode it as strictly.
//
// Printed, logged or marshalled it shows "xxxxx" for credentials, those in URLs
// included: a marshalled Config is for people to read. (Package fmt cannot call
// the methods of a Config in an unexported field of a struct, and shows it whole.)
type Config struct {
	// Strategy is one of [Names]. URL may name it instead.
	Strategy string `json:"strategy,omitempty" yaml:"strategy,omitempty"`

	// URL is as for [OpenURL]; the strategy may be left out of it. Credentials
	// and TLS may be given beside it.
	URL string `json:"url,omitempty" yaml:"url,omitempty"`
	// Addrs are host:port of one server, of Sentinels if MasterName is set, or
	// of some nodes of a cluster if Cluster is.
	Addrs      []string `json:"addrs,omitempty" yaml:"addrs,omitempty"`
	MasterName string   `json:"master_name,omitempty" yaml:"master_name,omitempty"`
	Cluster    bool     `json:"cluster,omitempty" yaml:"cluster,omitempty"`
	UnixSocket string   `json:"unix_socket,omitempty" yaml:"unix_socket,omitempty"`
	DB         int      `json:"db,omitempty" yaml:"db,omitempty"`
	Username   string   `json:"username,omitempty" yaml:"username,omitempty"`
	Password   string   `json:"password,omitempty" yaml:"password,omitempty"`
	// PasswordFile is a file with the password, which Open reads; a newline at its
	// end is no part of the password.
	PasswordFile         string `json:"password_file,omitempty" yaml:"password_file,omitempty"`
	SentinelUsername     string `json:"sentinel_username,omitempty" yaml:"sentinel_username,omitempty"`
	SentinelPassword     string `json:"sentinel_password,omitempty" yaml:"sentinel_password,omitempty"`
	SentinelPasswordFile string `json:"sentinel_password_file,omitempty" yaml:"sentinel_password_file,omitempty"`
	// TLS, even an empty one, turns TLS on; a URL does by its scheme.
	TLS *TLS `json:"tls,omitempty" yaml:"tls,omitempty"`

	// Nodes are the independent servers of a strategy that has a quorum of
	// them: an odd number, at least 3.
	Nodes []Node `json:"nodes,omitempty" yaml:"nodes,omitempty"`

	// Client and Clients are connections the caller has already. They are not
	// closed here.
	Client  redis.UniversalClient   `json:"-" yaml:"-"`
	Clients []redis.UniversalClient `json:"-" yaml:"-"`

	// TTL, RenewInterval, MaxRenewals, MaxHold, Margin and Prefix are as in the options of package locker. 0 and ""
	// are the defaults: 30 s for TTL, a third of the TTL for RenewInterval, none for the others.
	TTL time.Duration `json:"ttl,omitempty" yaml:"ttl,omitempty"`
	// Wait bounds the wait of Lock, to 365 days at most. 0 is no bound, see [locker.WithUnboundedWait];
	// [NoWait] is one attempt.
	Wait          time.Duration `json:"wait,omitempty" yaml:"wait,omitempty"`
	Renewal       *bool         `json:"renewal,omitempty" yaml:"renewal,omitempty"` // default true
	RenewInterval time.Duration `json:"renew_interval,omitempty" yaml:"renew_interval,omitempty"`
	MaxRenewals   int           `json:"max_renewals,omitempty" yaml:"max_renewals,omitempty"`
	MaxHold       time.Duration `json:"max_hold,omitempty" yaml:"max_hold,omitempty"`
	Margin        time.Duration `json:"margin,omitempty" yaml:"margin,omitempty"`
	Prefix        string        `json:"prefix,omitempty" yaml:"prefix,omitempty"`
	Fencing       *bool         `json:"fencing,omitempty" yaml:"fencing,omitempty"`     // default true
	HandOver      *bool         `json:"hand_over,omitempty" yaml:"hand_over,omitempty"` // between goroutines of a process; default true
	// Sticky is for how long a process keeps a lock that nobody uses, 1s at most; left out, it keeps
	// none. Not every strategy can.
	Sticky time.Duration `json:"sticky,omitempty" yaml:"sticky,omitempty"`
	// LossDetection lets holders learn at once that a key was deleted, see [locker.WithLossDetection]. Not every
	// strategy can.
	LossDetection bool `json:"loss_detection,omitempty" yaml:"loss_detection,omitempty"`
	// ReplicaAcks is how many replicas must have a grant or renewal before it counts, and
	// ReplicaAcksTimeout how long to wait for them: 1 ms to 3 s, and less than the TTL; by default 1 s, or half of the
	// TTL if that is less. Not every strategy can.
	ReplicaAcks        int           `json:"replica_acks,omitempty" yaml:"replica_acks,omitempty"`
	ReplicaAcksTimeout time.Duration `json:"replica_acks_timeout,omitempty" yaml:"replica_acks_timeout,omitempty"`

	// Options come after those made of the fields above: a logger, an observer,
	// options of the strategy. Of two that say the same the last counts, but
	// contradicting ones on renewal are refused.
	Options []locker.Option `json:"-" yaml:"-"`

	tuning url.Values // parameters of a URL that are for go-redis
}

// Node is one server of several: by URL (redis://, rediss:// or unix://), by Addr
// or by UnixSocket.
type Node struct {
	URL          string `json:"url,omitempty" yaml:"url,omitempty"`
	Addr         string `json:"addr,omitempty" yaml:"addr,omitempty"`
	UnixSocket   string `json:"unix_socket,omitempty" yaml:"unix_socket,omitempty"`
	DB           int    `json:"db,omitempty" yaml:"db,omitempty"`
	Username     string `json:"username,omitempty" yaml:"username,omitempty"`
	Password     string `json:"password,omitempty" yaml:"password,omitempty"`
	PasswordFile string `json:"password_file,omitempty" yaml:"password_file,omitempty"`
	TLS          *TLS   `json:"tls,omitempty" yaml:"tls,omitempty"`
}

// TLS names the files with the authorities to trust and with the client's certificate. They are in PEM, and are read by Open.
type TLS struct {
	CAFile   string `json:"ca_file,omitempty" yaml:"ca_file,omitempty"` // default the system's roots
	CertFile string `json:"cert_file,omitempty" yaml:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty" yaml:"key_file,omitempty"`
	// ServerName is the name in the certificates of all servers: by
	// default the host of the first address.
	ServerName         string `json:"server_name,omitempty" yaml:"server_name,omitempty"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify,omitempty" yaml:"insecure_skip_verify,omitempty"`
}
