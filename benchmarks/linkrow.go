// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// A linkRow measures callers that are far from Redis: each byte takes delay to get there, and as long back.
type linkRow struct {
	loadRow
	delay time.Duration
}

func (r linkRow) takes(c contestant) bool {
	a := c.about()
	return a.key == oursKey || a.key == limitGCRAKey || a.key == redisRateKey || a.pipelined
}

func (r linkRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	link, err := newLink(b.server.Addr(), r.delay)
	if err != nil {
		return nil, err
	}
	defer link.close()
	list, err := goContestants(link.addr(), b.options.pool, "")
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, far := range list {
			_ = far.close()
		}
	}()
	for _, far := range list {
		if far.about().key == c.about().key {
			return r.loadRow.measure(ctx, b, far, name)
		}
	}
	return nil, fmt.Errorf("no contestant %q", c.about().key)
}

// A link is a TCP proxy that delays what it passes on, and does not limit how much.
type link struct {
	listener net.Listener
	target   string
	delay    time.Duration
}

func newLink(target string, delay time.Duration) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener, target, delay}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go l.pass(server, client)
			go l.pass(client, server)
		}
	}()
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

func (l *link) close() { _ = l.listener.Close() }

// pass copies what comes from one side to the other, each piece when its time has come.
func (l *link) pass(to io.WriteCloser, from io.ReadCloser) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1<<16)
	go func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close()
				for range pieces { // until the reader ends
				}
				return
			}
		}
	}()
	defer close(pieces)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if n > 0 {
			pieces <- piece{b[:n], time.Now().Add(l.delay)}
		}
		if err != nil {
			return
		}
	}
}
