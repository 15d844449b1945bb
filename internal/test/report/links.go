//go:build unix

package report

import "github.com/distlock/locker/conformance/faultproxy"

// Links are the proxies between each of the two processes and the servers. A Stage embeds them.
type Links [2][]*faultproxy.Proxy

// Link adds a proxy made by open for each process.
func (l *Links) Link(open func() (*faultproxy.Proxy, error)) error {
	for who := range l {
		p, err := open()
		if err != nil {
			return err
		}
		l[who] = append(l[who], p)
	}
	return nil
}

// Target implements Stage.
func (l *Links) Target(who int) (t Target) {
	for _, p := range l[who] {
		t.Addrs = append(t.Addrs, p.Addr())
	}
	return t
}

// Silence implements Stage.
func (l *Links) Silence(who int, on bool) {
	for _, p := range l[who] {
		p.Blackhole(on)
	}
}

// Cut implements Stage.
func (l *Links) Cut() { l.each(func(p *faultproxy.Proxy) { p.Reset() }) }

// Unlink closes the proxies.
func (l *Links) Unlink() { l.each(func(p *faultproxy.Proxy) { _ = p.Close() }) }

func (l *Links) each(f func(*faultproxy.Proxy)) {
	for _, links := range l {
		for _, p := range links {
			f(p)
		}
	}
}
