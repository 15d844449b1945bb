package main

import (
	"net"
	"time"
)

// Delay is the argument of Child.Delay: a proxy to Addr that makes round trips
// longer by RTT.
type Delay struct {
	Addr string
	RTT  time.Duration
}

// Delay starts a proxy in this process and answers with its address. Bytes pass in
// pieces as they come, each after half of the time, so that a pipeline is as late as a
// single command. (The proxy of conformance/faultproxy delays command by command.) A
// process of its own has it, lest it competes with the workers' goroutines.
func (c *Child) Delay(d Delay, addr *string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	*addr = ln.Addr().String()
	there := (d.RTT / 2).Truncate(time.Millisecond) // what Go's timers are exact to
	go func() {
		for client, err := ln.Accept(); err == nil; client, err = ln.Accept() {
			server, err := net.Dial("tcp", d.Addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			go carry(client, server, there)
			go carry(server, client, d.RTT-there)
		}
	}()
	return nil
}

type piece struct {
	due   time.Time
	bytes []byte
}

// carry copies until one end hangs up, and then hangs up on the other.
func carry(from, to net.Conn, late time.Duration) {
	pieces := make(chan piece, 1<<14)
	go func() {
		defer from.Close()
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.bytes); err != nil {
				break
			}
		}
		for range pieces { // until the reader has noticed
		}
	}()
	defer close(pieces)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		pieces <- piece{time.Now().Add(late), append([]byte(nil), buf[:n]...)}
	}
}
