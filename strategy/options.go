package strategy

import (
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/strategy/memory"
)

// placeFields say where Redis is, all that documents have.
var placeFields = []string{
	"url", "addrs", "unix_socket", "cluster", "master_name", "db", "nodes", "username", "password", "password_file",
	"sentinel_username", "sentinel_password", "sentinel_password_file", "tls",
}

// exclude refuses those of the named fields of v that have a value.
func exclude(v any, at, why string, names ...string) error {
	fields := fieldsOf(reflect.ValueOf(v))
	for _, name := range names {
		if f := fields[name]; !f.IsZero() {
			return refuse(at+name, reflect.Indirect(f).Interface(), "%s", why)
		}
	}
	return nil
}

// fieldOption is what a field of a Config is for package locker.
type fieldOption struct {
	field  string // "" for Config.Options
	value  any
	option locker.Option
}

// lockOptions makes options of c's fields. What values they take is for their
// constructors to say; see nameField.
func (c *Config) lockOptions(r *Registry, o Opener) ([]fieldOption, error) {
	renewal := c.Renewal == nil || *c.Renewal
	if !renewal {
		if err := exclude(*c, "", "not together with renewal: false", "renew_interval", "max_renewals"); err != nil {
			return nil, err
		}
	}
	if o.Other == nil {
		if err := redisdriver.CheckPrefix(c.Prefix); err != nil {
			return nil, refuse("prefix", c.Prefix, "%v", err)
		}
	}
	var opts []fieldOption
	add := func(given bool, field string, value any, option locker.Option) {
		if given {
			opts = append(opts, fieldOption{field, value, option})
		}
	}
	add(c.TTL != 0, "ttl", c.TTL, locker.WithTTL(c.TTL))
	add(c.Wait == NoWait, "wait", c.Wait, locker.WithWait(0))
	add(c.Wait != 0 && c.Wait != NoWait, "wait", c.Wait, locker.WithWait(c.Wait))
	add(c.Prefix != "", "prefix", c.Prefix, locker.WithPrefix(c.Prefix))
	add(!renewal, "renewal", false, locker.WithoutRenewal())
	add(c.RenewInterval != 0, "renew_interval", c.RenewInterval, locker.WithRenewInterval(c.RenewInterval))
	add(c.MaxRenewals != 0, "max_renewals", c.MaxRenewals, locker.WithMaxRenewals(c.MaxRenewals))
	add(c.MaxHold != 0, "max_hold", c.MaxHold, locker.WithMaxHold(c.MaxHold))
	add(c.Fencing != nil && !*c.Fencing, "fencing", false, locker.WithoutFencing())
	acks, err := c.replicaAcks(r, o)
	if err != nil {
		return nil, err
	}
	add(acks != nil, "", nil, acks)
	for _, opt := range c.Options {
		add(true, "", nil, opt)
	}
	return opts, nil
}

// replicaAcks is nil if no replica is asked.
func (c *Config) replicaAcks(r *Registry, o Opener) (locker.Option, error) {
	ttl, timeout := c.TTL, c.ReplicaAcksTimeout
	if ttl == 0 {
		ttl = locker.DefaultTTL
	}
	if timeout == 0 {
		timeout = min(time.Second, ttl/2)
	}
	const most = 3 * time.Second // as in WithReplicaAcks
	switch {
	case c.ReplicaAcks == 0:
		return nil, exclude(*c, "", "only together with replica_acks", "replica_acks_timeout")
	case o.ReplicaAcks == nil:
		return nil, refuse("replica_acks", c.ReplicaAcks, "not supported by strategy %s; supported by: %s", c.Strategy,
			r.names(func(o Opener) bool { return o.ReplicaAcks != nil }))
	case c.ReplicaAcks < 0:
		return nil, refuse("replica_acks", c.ReplicaAcks, "at least 1; left out no replica is asked")
	case timeout < time.Millisecond || timeout > most || timeout >= ttl:
		return nil, refuse("replica_acks_timeout", timeout, "1ms to %v and less than the ttl, which is %v; left out it is 1s", most, ttl)
	}
	return o.ReplicaAcks(c.ReplicaAcks, timeout), nil
}

// nameField finds the field that a constructor has refused with err, by giving
// one more of them each time to a Locker in memory.
func nameField(opts []fieldOption, err error) error {
	if !errors.Is(err, locker.ErrInvalid) {
		return err
	}
	var tried []locker.Option
	for _, o := range opts {
		if o.field == "" {
			continue
		}
		tried = append(tried, o.option)
		l, refused := memory.New(tried...)
		if refused != nil {
			why := strings.TrimPrefix(refused.Error(), "locker: "+locker.ErrInvalid.Error()+": ")
			return refuse(o.field, o.value, "%s", why)
		}
		_ = l.Close()
	}
	return err
}
