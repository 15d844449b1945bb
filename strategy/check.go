package strategy

import (
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/distlock/locker"
)

const defaultReplicaAcksTimeout = time.Second

const (
	allowedTTL         = "at least 100ms; left out it is 30s"
	allowedWait        = "not negative; left out, a Lock waits until its context is done"
	allowedInterval    = "at least 1ms and less than the ttl; left out it is a third of the ttl"
	allowedMaxRenewals = "at least 1; renewal: false is for none"
	allowedMaxHold     = "more than 0s; left out there is no limit"
	allowedAcks        = "at least 1; left out no replica is asked"
	allowedAcksTimeout = "1ms to 3s and less than the ttl; left out it is 1s"
)

// positive are the fields whose zero means that they were left out, so that a
// document must not say zero.
var positive = map[string]string{
	"ttl":                  allowedTTL,
	"renew_interval":       allowedInterval,
	"max_renewals":         allowedMaxRenewals,
	"max_hold":             allowedMaxHold,
	"replica_acks":         allowedAcks,
	"replica_acks_timeout": allowedAcksTimeout,
}

// lockOptions makes the options of package locker out of c's fields, once they
// agree with each other and with what the strategy can.
func (c *Config) lockOptions(r *Registry, o Opener) ([]locker.Option, error) {
	ttl := c.TTL
	if ttl == 0 {
		ttl = locker.DefaultTTL
	}
	// An option may change the TTL; locker.New compares with that one.
	ttlKnown := c.TTL != 0 || len(c.Options) == 0
	renewal := c.Renewal == nil || *c.Renewal

	switch {
	case ttl < locker.MinTTL:
		return nil, refuse("ttl", c.TTL, allowedTTL)
	case c.Wait < 0:
		return nil, refuse("wait", c.Wait, allowedWait)
	case c.RenewInterval != 0 && c.RenewInterval < time.Millisecond:
		return nil, refuse("renew_interval", c.RenewInterval, allowedInterval)
	case c.RenewInterval != 0 && !renewal:
		return nil, refuse("renew_interval", c.RenewInterval, "not together with renewal: false")
	case c.RenewInterval >= ttl && ttlKnown:
		return nil, refuse("renew_interval", c.RenewInterval, "less than the ttl, which is %v", ttl)
	case c.MaxRenewals < 0:
		return nil, refuse("max_renewals", c.MaxRenewals, allowedMaxRenewals)
	case c.MaxRenewals > 0 && !renewal:
		return nil, refuse("max_renewals", c.MaxRenewals, "not together with renewal: false")
	case c.MaxHold < 0:
		return nil, refuse("max_hold", c.MaxHold, allowedMaxHold)
	case len(c.Prefix) > locker.MaxKeyLen || !utf8.ValidString(c.Prefix):
		return nil, refuse("prefix", c.Prefix, "at most %d bytes of UTF-8; it has %d bytes", locker.MaxKeyLen, len(c.Prefix))
	}
	for _, opt := range c.Options {
		if opt == nil {
			return nil, refuse("Options", "nil", "options of package locker or of the strategy")
		}
	}

	var opts []locker.Option
	if c.TTL > 0 {
		opts = append(opts, locker.WithTTL(c.TTL))
	}
	if c.Wait > 0 {
		opts = append(opts, locker.WithWait(c.Wait))
	}
	if c.Prefix != "" {
		opts = append(opts, locker.WithPrefix(c.Prefix))
	}
	if !renewal {
		opts = append(opts, locker.WithoutRenewal())
	}
	if c.RenewInterval > 0 {
		opts = append(opts, locker.WithRenewInterval(c.RenewInterval))
	}
	if c.MaxRenewals > 0 {
		opts = append(opts, locker.WithMaxRenewals(c.MaxRenewals))
	}
	if c.MaxHold > 0 {
		opts = append(opts, locker.WithMaxHold(c.MaxHold))
	}
	if c.Fencing != nil && !*c.Fencing {
		opts = append(opts, locker.WithoutFencing())
	}
	acks, err := c.replicaAcks(r, o, ttl)
	if err != nil {
		return nil, err
	}
	return append(append(opts, acks...), c.Options...), nil
}

func (c *Config) replicaAcks(r *Registry, o Opener, ttl time.Duration) ([]locker.Option, error) {
	timeout := c.ReplicaAcksTimeout
	switch {
	case c.ReplicaAcks == 0 && timeout == 0:
		return nil, nil
	case c.ReplicaAcks == 0:
		return nil, refuse("replica_acks_timeout", timeout, "only together with replica_acks")
	case o.ReplicaAcks == nil:
		return nil, refuse("replica_acks", c.ReplicaAcks, "not supported by strategy %s; supported by: %s", c.Strategy,
			r.those(func(o Opener) bool { return o.ReplicaAcks != nil }))
	case c.ReplicaAcks < 0:
		return nil, refuse("replica_acks", c.ReplicaAcks, allowedAcks)
	}
	if timeout == 0 {
		timeout = min(defaultReplicaAcksTimeout, ttl/2)
	}
	if timeout < time.Millisecond || timeout > 3*time.Second || timeout >= ttl {
		return nil, refuse("replica_acks_timeout", timeout, "%s (the ttl is %v)", allowedAcksTimeout, ttl)
	}
	return []locker.Option{o.ReplicaAcks(c.ReplicaAcks, timeout)}, nil
}

// firstSet is the first of the named fields that has a value.
func firstSet(v any, names ...string) (name string, value any) {
	known := make(map[string]reflect.Value)
	for name, f := range fields(reflect.Indirect(reflect.ValueOf(v))) {
		known[name] = f
	}
	for _, name := range names {
		if f := known[name]; !f.IsZero() {
			return name, f.Interface()
		}
	}
	return "", nil
}

// exclude refuses those of the named fields that have a value.
func exclude(v any, at, why string, names ...string) error {
	if name, value := firstSet(v, names...); name != "" {
		return refuse(at+name, value, "%s", why)
	}
	return nil
}
