package etcd

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/distlock/locker/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Permits in the line. A member's value says how many it takes, of how many. In the order of the line
// they are out for as long as all that are out so far are at most the limit of each; the first member that does not
// fit waits, and so do all behind it, whatever they want. Members that go make room, and those that come are behind all others:
// what is out stays out until it is deleted. A lock is alone: its member holds as the first, and those behind it wait.
//
// An etcd transaction adds nothing up. So an attempt that does not wait reads the line, and puts its member on
// condition that nobody was put since. One that waits puts its member in any case, as a lock's does.

// wanted describes the claim of a member that holds or waits.
type wanted struct {
	count, limit int // 0 for a lock
	owner        string
}

// permitsMark begins the value of a member with permits, which goes on with count, limit and owner. No owner begins so: it
// is no UTF-8.
const permitsMark = "\xff"

// valueOf returns the value of a claim's member. Of a lock it is the name of the owner, if the caller gave one.
func valueOf(c driver.Claim) string {
	owner := c.Owner
	if owner == c.ID {
		owner = ""
	}
	if c.Limit == 0 {
		return owner
	}
	return fmt.Sprintf("%s%d %d %s", permitsMark, c.Permits, c.Limit, owner)
}

// permitsOf inverts valueOf. What has another form is a lock.
func permitsOf(kv *mvccpb.KeyValue) wanted {
	value := string(kv.Value)
	if words, ok := strings.CutPrefix(value, permitsMark); ok {
		if of := strings.SplitN(words, " ", 3); len(of) == 3 {
			count, err1 := strconv.Atoi(of[0])
			limit, err2 := strconv.Atoi(of[1])
			if err1 == nil && err2 == nil && 1 <= count && count <= limit && limit <= driver.MaxPermits {
				return wanted{count, limit, of[2]}
			}
		}
	}
	return wanted{owner: value}
}

// holding returns the members that hold a lock, or have permits.
func holding(members []*mvccpb.KeyValue) []*mvccpb.KeyValue {
	out := 0
	for i, kv := range members {
		p := permitsOf(kv)
		switch out += p.count; {
		case p.limit == 0 && i == 0:
			return members[:1]
		case p.limit == 0, out > p.limit:
			return members[:i]
		}
	}
	return members
}

// holds reports whether the member of that name is one of them.
func holds(members []*mvccpb.KeyValue, name string) bool {
	return slices.ContainsFunc(holding(members), func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == name })
}

func without(members []*mvccpb.KeyValue, name string) []*mvccpb.KeyValue {
	return slices.DeleteFunc(members, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == name })
}

func out(members []*mvccpb.KeyValue) (n int) {
	for _, kv := range members {
		n += permitsOf(kv).count
	}
	return n
}

// permits describes the line that a claim of permits finds.
type permits struct {
	members []*mvccpb.KeyValue // nil for a lock
	seen    int64              // the revision that was read
	behind  bool               // the first member has permits
	fits    bool               // the claim's would be out, behind the others
	free    int                // how many more could be granted: as many as the claim's, so that attempts come one after another
	other   int                // the limit that was named before, if it is another one
}

// isBehindPermits reports whether the attempt of a line was refused at a key with permits.
func (l line) isBehindPermits() bool { return l.behind && !l.holds }

// permitsIn reports which permits a line has for a claim, whose member may be in it.
func permitsIn(members []*mvccpb.KeyValue, m member, c driver.Claim, res *clientv3.TxnResponse) permits {
	p := permits{seen: res.Header.Revision, behind: len(members) > 0 && permitsOf(members[0]).limit > 0}
	if c.Limit == 0 {
		return p
	}
	p.members = members
	left := c.Limit - out(members)
	p.fits = len(members) == 0 || p.behind && len(holding(members)) == len(members) && c.Permits <= left
	if p.behind {
		p.free = min(max(left, 0), c.Permits)
	}
	before := members
	if last := len(members) - 1; last >= 0 && string(members[last].Key) == m.name() && members[last].CreateRevision == p.seen {
		before = members[:last] // it was put just now
	}
	if limit := limitOf(before); limit != c.Limit {
		p.other = limit
	}
	return p
}

// limitOf returns the limit that was named last; 0 if there is none. A lock that waits names none.
func limitOf(members []*mvccpb.KeyValue) int {
	for _, kv := range slices.Backward(members) {
		if p := permitsOf(kv); p.limit > 0 {
			return p.limit
		}
	}
	return 0
}

// lapse closes a place that was silent, and has no Watch.
func (p *place) lapse() {
	p.d.mu.Lock()
	id := ""
	if p.silent != nil && !p.asking {
		id = p.close()
	}
	p.d.mu.Unlock()
	p.d.giveUp(member{p.key, id})
}

// seatID makes the id of a member that waits for permits for the attempt of that id. It is an id of its own: the Release by
// which a caller ends its bid may come when another caller was granted the member.
func (d *etcdDriver) seatID(attempt string) string {
	id, _, _ := strings.Cut(d.newID(), driver.MetadataMark)
	if i := strings.Index(attempt, driver.MetadataMark); i >= 0 {
		id += attempt[i:]
	}
	return id
}

// waiting reports whether a claim that is released is that of the last attempt in a place that waits for permits. It
// returns the member to be deleted, unless an attempt of another caller is under way for it.
func (d *etcdDriver) waiting(c driver.Claim) (m member, waits bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.places[c.Key]
	if c.Limit == 0 || p == nil || p.id == "" || c.ID != p.last {
		return m, false
	}
	if !p.asking {
		m = member{p.key, p.id}
		p.id, p.last = "", ""
		p.unwatch()
	}
	return m, true
}

// waits reports whether the claim has a place, and no permits.
func (d *etcdDriver) waits(c driver.Claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.places[c.Key]
	return c.Limit > 0 && p != nil && p.id == c.ID
}

// Permits implements driver.PermitKeeper.
func (d *etcdDriver) Permits(ctx context.Context, key string) (n, limit int, err error) {
	members, _, err := d.members(ctx, key)
	if err != nil || len(members) == 0 {
		return 0, 0, err
	}
	if permitsOf(members[0]).limit == 0 {
		return 0, 0, fmt.Errorf("%w: the key is held as a lock", driver.ErrConflict)
	}
	return out(holding(members)), limitOf(members), nil
}

// PermitClaims implements driver.PermitInspector: a command for all members, and one for the lease of each.
func (d *etcdDriver) PermitClaims(ctx context.Context, key string) iter.Seq2[driver.Holder, error] {
	return func(yield func(driver.Holder, error) bool) {
		members, base, err := d.members(ctx, key)
		if err != nil {
			yield(driver.Holder{}, err)
			return
		}
		for _, member := range holding(members) {
			h := d.member(member, base)
			if h.Limit == 0 {
				return
			}
			h, err := d.remaining(ctx, h, member.Lease)
			if !yield(h, err) || err != nil {
				return
			}
		}
	}
}
