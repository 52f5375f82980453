// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// An Apart sends commands to one server on a connection of its own, outside the pool of the client that it was made
// from. So its calls never wait for a connection, whatever others do with that pool. It is a Sender.
type Apart struct {
	rdb  *redis.Client
	wire Wire
	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// A Wire has functions that are called for the traffic of a connection. None is nil.
type Wire struct {
	Sent  func() (first bool) // something has been sent: the first since the server was heard, or since the beginning
	Heard func()              // something has come from the server
}

// OpenApart returns an Apart to the server that holds a key. It calls w.Sent when it begins to connect, if its dialer
// shows that, and with each write. It calls w.Heard for everything that it reads, because a server that replies to
// the hello of a connection is there. Other things that the client does, such as asking a vault for a password, count
// as neither. OpenApart returns nil if the server, or how to connect to it, is not known. The caller has to close the
// Apart.
func OpenApart(ctx context.Context, s Sender, key string, w Wire) *Apart {
	node, err := Node(ctx, s, key)
	if err != nil {
		return nil
	}
	c, ok := node.(interface{ Options() *redis.Options })
	if !ok {
		return nil
	}
	from := c.Options()
	if from == nil {
		return nil
	}
	a, o := &Apart{wire: w}, *from
	a.ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	o.Dialer = a.dialer(dialerOf(from))
	// One connection is enough, because its calls follow each other. If as many dials have failed as the pool has
	// connections, go-redis goes on dialing in a goroutine that outlasts Close by a second.
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 2, 0, 0, 0
	o.MaxRetries, o.DialerRetries, o.Limiter = -1, 1, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	a.rdb = redis.NewClient(&o)
	return a
}

// Process sends one command. It must not be called by several goroutines at once.
func (a *Apart) Process(ctx context.Context, cmd redis.Cmder) error {
	return a.rdb.Process(ctx, cmd)
}

// Close closes the connection. A call in flight fails; Close does not wait for it.
func (a *Apart) Close() {
	a.stop()
	a.mu.Lock()
	a.closed = true
	for _, c := range a.conns {
		_ = c.Close()
	}
	a.mu.Unlock()
	_ = a.rdb.Close()
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns a dialer like dial that reports what it sends. If a dialer does not pass ctx on to package net,
// nothing is known of it until it returns: it may wait for a name to be resolved.
func (a *Apart) dialer(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var first atomic.Bool
		ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectStart: func(string, string) {
			if a.wire.Sent() {
				first.Store(true)
			}
		}}))
		defer cancel()
		defer context.AfterFunc(a.ctx, cancel)()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.closed {
			_ = c.Close()
			return nil, net.ErrClosed
		}
		a.conns = append(a.conns, c)
		if first.Load() { // what it has sent so far has been answered; the hello has not been sent
			a.wire.Heard()
		}
		return wired{c, a.wire}, nil
	}
}

// A wired is a connection that reports its traffic to a Wire.
type wired struct {
	net.Conn
	wire Wire
}

// Read implements net.Conn.
func (c wired) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.wire.Heard()
	}
	return n, err
}

// Write implements net.Conn.
func (c wired) Write(p []byte) (int, error) {
	c.wire.Sent()
	return c.Conn.Write(p)
}

// dialerOf returns the dialer of o. It replaces the one that go-redis makes for TLS, which does not pass ctx on.
func dialerOf(o *redis.Options) dialer {
	if o.TLSConfig == nil || reflect.ValueOf(o.Dialer).Pointer() != reflect.ValueOf(redis.NewDialer(o)).Pointer() {
		return o.Dialer
	}
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: o.DialTimeout, KeepAlive: 5 * time.Minute}, Config: o.TLSConfig}
	return d.DialContext
}
