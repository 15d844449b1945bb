package strategy

import (
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
)

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

// fieldOption is the option of package locker that a field of a Config stands for.
type fieldOption struct {
	field  string // "" for Config.Options and for options of a strategy, which nameField cannot try in memory
	value  any
	option locker.Option
}

// lockOptions makes options of c's fields. The constructors check the values, and nameField names the wrong
// field. The value of an option of one strategy has to be checked here, as replicaAcks does.
func (c *Config) lockOptions(r *Registry, o Opener) ([]fieldOption, error) {
	renewal := c.Renewal == nil || *c.Renewal
	if !renewal {
		if err := exclude(*c, "", "not together with renewal: false", "renew_interval", "max_renewals"); err != nil {
			return nil, err
		}
	}
	acks, err := c.replicaAcks(r, o)
	if err != nil {
		return nil, err
	}
	var opts []fieldOption
	for _, o := range []struct {
		given bool
		fieldOption
	}{
		{c.TTL != 0, fieldOption{"ttl", c.TTL, locker.WithTTL(c.TTL)}},
		{c.Wait == NoWait, fieldOption{"wait", c.Wait, locker.WithWait(0)}},
		{c.Wait != 0 && c.Wait != NoWait, fieldOption{"wait", c.Wait, locker.WithWait(c.Wait)}},
		{c.Prefix != "", fieldOption{"prefix", c.Prefix, locker.WithPrefix(c.Prefix)}},
		{!renewal, fieldOption{"renewal", false, locker.WithoutRenewal()}},
		{c.RenewInterval != 0, fieldOption{"renew_interval", c.RenewInterval, locker.WithRenewInterval(c.RenewInterval)}},
		{c.MaxRenewals != 0, fieldOption{"max_renewals", c.MaxRenewals, locker.WithMaxRenewals(c.MaxRenewals)}},
		{c.MaxHold != 0, fieldOption{"max_hold", c.MaxHold, locker.WithMaxHold(c.MaxHold)}},
		{c.Margin != 0, fieldOption{"margin", c.Margin, locker.WithMargin(c.Margin)}},
		{c.Fencing != nil && !*c.Fencing, fieldOption{"fencing", false, locker.WithoutFencing()}},
		{c.HandOver != nil && !*c.HandOver, fieldOption{"hand_over", false, locker.WithoutHandOver()}},
		{c.Sticky != 0, fieldOption{"sticky", c.Sticky, locker.WithSticky(c.Sticky)}},
		{c.LossDetection, fieldOption{"loss_detection", true, locker.WithLossDetection()}},
		{acks != nil, fieldOption{option: acks}},
	} {
		if o.given {
			opts = append(opts, o.fieldOption)
		}
	}
	for _, opt := range c.Options {
		opts = append(opts, fieldOption{option: opt})
	}
	return opts, nil
}

// replicaAcks returns nil if no replica is asked.
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
