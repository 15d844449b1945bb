package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// session is one connection. Its commands are written in order, by a goroutine
// that lives while there are some, so that h.mu is never held over the network.
type session struct {
	ps      *redis.PubSub
	ops     []op
	pending map[string]int // subscriptions to a channel sent but not confirmed
	sent    [][]string     // the channels of each subscription that is not answered
	writing bool
}

type op struct {
	subscribe bool
	channel   string
	alone     bool // in a command of its own
}

func (s *session) close() {
	if s != nil {
		_ = s.ps.Close()
	}
}

func (h *hub) enqueue(o op) {
	s := h.cur
	if o.subscribe {
		s.pending[o.channel]++
	}
	s.ops = append(s.ops, o)
	if !s.writing {
		s.writing = true
		go h.write(s)
	}
}

// together reports whether one command may have both channels.
func (h *hub) together(a, b op) bool {
	return a.subscribe == b.subscribe && (!h.sharded || Slot(a.channel) == Slot(b.channel))
}

// answered takes an answer to a subscription into account: they come in the order of the
// commands, one for each channel, or an error for all channels of a command.
func (s *session) answered(channel string) {
	if len(s.sent) > 0 && s.sent[0][0] == channel {
		if s.sent[0] = s.sent[0][1:]; len(s.sent[0]) == 0 {
			s.sent = s.sent[1:]
		}
	}
}

// refused takes the channels off of which the server has refused one.
func (s *session) refused() (channels []string) {
	if len(s.sent) > 0 {
		channels, s.sent = s.sent[0], s.sent[1:]
	}
	return channels
}

// write sends the session's commands, as many channels at once as are there. It reports
// false if the session has ended.
func (h *hub) write(s *session) bool {
	for {
		h.mu.Lock()
		n := 0
		for n < len(s.ops) && h.together(s.ops[0], s.ops[n]) && (n == 0 || !s.ops[n].alone && !s.ops[0].alone) {
			n++
		}
		if n == 0 || h.cur != s {
			s.writing = false
			alive := h.cur == s
			h.mu.Unlock()
			return alive
		}
		channels := make([]string, n)
		for i := range channels {
			channels[i] = s.ops[i].channel
		}
		subscribe := s.ops[0].subscribe
		if subscribe {
			s.sent = append(s.sent, channels)
		}
		s.ops = s.ops[n:]
		h.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
		var err error
		switch {
		case subscribe && h.sharded:
			err = s.ps.SSubscribe(ctx, channels...)
		case subscribe:
			err = s.ps.Subscribe(ctx, channels...)
		case h.sharded:
			err = s.ps.SUnsubscribe(ctx, channels...)
		default:
			err = s.ps.Unsubscribe(ctx, channels...)
		}
		cancel()
		if err != nil {
			h.fail(s, err)
			return false
		}
	}
}

// read handles what the server sends until the session ends. go-redis does not
// notice when pings stay unanswered, so that is done here.
func (h *hub) read(s *session) {
	asked := false
	for {
		msg, err := s.ps.ReceiveTimeout(context.Background(), pingEvery)
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() && !asked {
			asked = true
			err = s.ps.Ping(context.Background())
			if err == nil {
				continue
			}
		}
		if isForbidden(err) && h.forbidden(s, err) {
			continue
		}
		if slot, ok := movedSlot(err); ok {
			h.elsewhere(s, slot)
			continue
		}
		if err != nil {
			h.fail(s, err)
			return
		}
		asked = false
		switch m := msg.(type) {
		case *redis.Message:
			h.wake(m.Channel)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				h.confirm(s, m.Channel)
			case "sunsubscribe":
				h.moved(m.Channel)
			}
		}
	}
}

// moved ends the topic of a channel that the server has unsubscribed, because its
// slot went to another node, unless we left it ourselves.
func (h *hub) moved(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[channel]
	if t == nil || h.cur == nil || h.cur.pending[channel] > 0 {
		return
	}
	delete(h.topics, channel)
	t.fail(errMoved)
	if h.cluster != nil {
		h.cluster.ReloadState(context.Background())
	}
}

// isForbidden reports whether the user may not hear of a channel, and may of others.
func isForbidden(err error) bool {
	msg, m, _ := answer(err)
	return m&refused != 0 && strings.Contains(msg, "permissions to access")
}

// forbidden ends the topic of a channel that the user may not subscribe to. Of several in one
// command it is not known which: they are tried one by one.
func (h *hub) forbidden(s *session, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	channels := s.refused()
	if h.cur != s || len(channels) == 0 {
		return false
	}
	for _, channel := range channels {
		if s.pending[channel]--; s.pending[channel] > 0 {
			continue // it was left and joined again
		}
		delete(s.pending, channel)
		switch t := h.topics[channel]; {
		case t == nil:
		case len(channels) > 1:
			h.enqueue(op{subscribe: true, channel: channel, alone: true})
		default:
			delete(h.topics, channel)
			t.fail(err)
			h.enqueue(op{channel: channel}) // go-redis would subscribe to it with the next connection
			h.mayRest()
		}
	}
	return true
}

// movedSlot is the slot of a subscription that another node is for.
func movedSlot(err error) (slot int, ok bool) {
	msg, _, _ := answer(err)
	n, _ := fmt.Sscanf(msg, "MOVED %d ", &slot)
	return slot, n == 1
}

// elsewhere ends the topics of a slot.
func (h *hub) elsewhere(s *session, slot int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cur != s || h.cluster == nil {
		return
	}
	s.refused()
	for channel, t := range h.topics {
		if Slot(channel) == slot {
			delete(h.topics, channel)
			delete(s.pending, channel)
			t.fail(errMoved)
		}
	}
	h.cluster.ReloadState(context.Background())
}

var errMoved = errors.New("the channel has moved to another node")
