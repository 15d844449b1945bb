package redispubsub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/distlock/locker/internal/redisconn"
	"github.com/redis/go-redis/v9"
)

// connection is one pub/sub connection. Its commands are written in order, by a goroutine
// that lives while there are some, so that the subscriber's mutex is never held over the
// network.
type connection struct {
	pubsub  *redis.PubSub
	queue   []command
	pending map[string]int // subscriptions to a channel that are sent but not confirmed
	sent    [][]string     // the channels of each subscribe command that is not answered
	writing bool
}

// command subscribes to a channel, or unsubscribes.
type command struct {
	subscribe bool
	channel   string
	alone     bool // not with other channels
}

func (c *connection) close() {
	if c != nil {
		_ = c.pubsub.Close()
	}
}

func (s *subscriber) enqueue(cmd command) {
	c := s.conn
	if cmd.subscribe {
		c.pending[cmd.channel]++
	}
	c.queue = append(c.queue, cmd)
	if !c.writing {
		c.writing = true
		go s.write(c)
	}
}

// mayJoin reports whether one command may have the channels of both.
func (s *subscriber) mayJoin(a, b command) bool {
	return a.subscribe == b.subscribe && !a.alone && !b.alone &&
		(!s.sharded || redisconn.Slot(a.channel) == redisconn.Slot(b.channel))
}

// answered notes the answer to a subscription. Answers come in the order of the commands, one
// for each channel, or an error for all channels of a command.
func (c *connection) answered(channel string) {
	if len(c.sent) > 0 && c.sent[0][0] == channel {
		if c.sent[0] = c.sent[0][1:]; len(c.sent[0]) == 0 {
			c.sent = c.sent[1:]
		}
	}
}

// refused notes that the server has refused one of the channels of a command. It returns
// them all.
func (c *connection) refused() (channels []string) {
	if len(c.sent) > 0 {
		channels, c.sent = c.sent[0], c.sent[1:]
	}
	return channels
}

// next takes the next command off c's queue, with as many channels as it may have. It returns
// none if there is nothing to write, or c is not the subscriber's connection any more.
func (s *subscriber) next(c *connection) (channels []string, subscribe, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != c || len(c.queue) == 0 {
		c.writing = false
		return nil, false, s.conn == c
	}
	n := 1
	for n < len(c.queue) && s.mayJoin(c.queue[0], c.queue[n]) {
		n++
	}
	channels = make([]string, n)
	for i := range channels {
		channels[i] = c.queue[i].channel
	}
	subscribe = c.queue[0].subscribe
	if subscribe {
		c.sent = append(c.sent, channels)
	}
	c.queue = c.queue[n:]
	return channels, subscribe, true
}

// write sends c's commands until there are none. It reports whether c is still the
// subscriber's connection.
func (s *subscriber) write(c *connection) bool {
	for {
		channels, subscribe, current := s.next(c)
		if len(channels) == 0 {
			return current
		}
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		var err error
		switch {
		case subscribe && s.sharded:
			err = c.pubsub.SSubscribe(ctx, channels...)
		case subscribe:
			err = c.pubsub.Subscribe(ctx, channels...)
		case s.sharded:
			err = c.pubsub.SUnsubscribe(ctx, channels...)
		default:
			err = c.pubsub.Unsubscribe(ctx, channels...)
		}
		cancel()
		if err != nil {
			s.fail(c, err)
			return false
		}
	}
}

// read handles what the server sends until the connection ends. go-redis does not notice
// when pings stay unanswered, so read does.
func (s *subscriber) read(c *connection) {
	pinged := false
	for {
		msg, err := c.pubsub.ReceiveTimeout(context.Background(), pingEvery)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !pinged {
			pinged = true
			err = c.pubsub.Ping(context.Background())
			if err == nil {
				continue
			}
		}
		if isForbidden(err) && s.forbidden(c, err) {
			continue
		}
		if slot, ok := movedSlot(err); ok {
			s.slotMoved(c, slot)
			continue
		}
		if err != nil {
			s.fail(c, err)
			return
		}
		pinged = false
		switch m := msg.(type) {
		case *redis.Message:
			s.received(m.Channel, m.Payload)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				s.confirm(c, m.Channel)
			case "sunsubscribe":
				s.unsubscribed(m.Channel)
			}
		}
	}
}

// unsubscribed ends the subscription to a channel that the server has unsubscribed, because
// its slot went to another node. An unsubscription that we asked for changes nothing.
func (s *subscriber) unsubscribed(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subscriptions[channel]
	if sub == nil || s.conn == nil || s.conn.pending[channel] > 0 {
		return
	}
	delete(s.subscriptions, channel)
	sub.fail(errMoved)
	s.closeWhenIdle()
	if s.cluster != nil {
		s.cluster.ReloadState(context.Background())
	}
}

// isForbidden reports whether the user may not subscribe to a channel, and may to others.
func isForbidden(err error) bool {
	return redisconn.IsRefusal(err) && strings.Contains(err.Error(), "permissions to access")
}

// forbidden ends the subscription to a channel that the user may not subscribe to. Of several
// in one command it is not known which one that is: they are tried one by one.
func (s *subscriber) forbidden(c *connection, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	channels := c.refused()
	if s.conn != c || len(channels) == 0 {
		return false
	}
	for _, channel := range channels {
		if c.pending[channel]--; c.pending[channel] > 0 {
			continue // it was left and joined again
		}
		delete(c.pending, channel)
		switch sub := s.subscriptions[channel]; {
		case sub == nil:
		case len(channels) > 1:
			s.enqueue(command{subscribe: true, channel: channel, alone: true})
		default:
			delete(s.subscriptions, channel)
			sub.fail(err)
			s.enqueue(command{channel: channel}) // go-redis would subscribe to it with the next connection
			s.closeWhenIdle()
		}
	}
	return true
}

// movedSlot returns the slot of a subscription that another node is for.
func movedSlot(err error) (slot int, ok bool) {
	var server redis.Error
	if !errors.As(err, &server) {
		return 0, false
	}
	n, _ := fmt.Sscanf(server.Error(), "MOVED %d ", &slot)
	return slot, n == 1
}

// slotMoved ends the subscriptions to the channels of a slot.
func (s *subscriber) slotMoved(c *connection, slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != c || s.cluster == nil {
		return
	}
	c.refused()
	for channel, sub := range s.subscriptions {
		if redisconn.Slot(channel) == slot {
			delete(s.subscriptions, channel)
			delete(c.pending, channel)
			sub.fail(errMoved)
		}
	}
	s.closeWhenIdle()
	s.cluster.ReloadState(context.Background())
}

var errMoved = errors.New("the channel has moved to another node")
