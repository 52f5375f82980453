// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptrace"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// An apart is one connection to a server, outside the pool of the client that it was made from. So it says something about
// the server, whatever the state of that pool.
type apart struct {
	node Sender // the client that it was made from
	rdb  *redis.Client
	ctx  context.Context // ends with close
	stop context.CancelFunc

	sentinel atomic.Bool  // its dialer asks Sentinel first, which may be what does not connect
	waiting  atomic.Bool  // something was sent, and nothing has come back since
	heard    atomic.Int64 // how often something has come back

	mu     sync.Mutex // protects node, rdb and what follows
	closed bool
	conns  []net.Conn
}

// ticks is how many times the wait for a reply is looked at before it is a silence. What passes between two of them counts
// once: if this process stands still, its timers are late together.
const ticks = 20

// Probe sends a command to the server that holds a key, on a connection that it opens for it and closes. It returns nil if there
// is a reply, even an error that another command might not meet, or if the client is closed, and otherwise a *[retry.Error].
// It is Silent if something was sent and nothing has come back for as long as patience: while it connects, if the dialer of the
// client shows when that begins, in the handshake, or after the command. Other things that the client does, such as asking a
// vault for a password or Sentinel for an address, may take longer, but if they take more than clientPatience the error is Local.
//
// On a cluster Probe first looks up the masters, because the one that does not reply may have been replaced.
func Probe(s Sender, key string, args []any, patience time.Duration) error {
	return newApart().probe(s, key, args, patience)
}

// newApart returns an apart that is not connected.
func newApart() *apart {
	a := &apart{}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// probe is [Probe]. It may be called once.
func (a *apart) probe(s Sender, key string, args []any, patience time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer a.close()
	done := make(chan error, 1)
	go func() {
		var err error
		panicked := retry.Contain("a function of the redis client", func() { err = a.ask(ctx, s, key, args) })
		done <- cmp.Or(panicked, err)
	}()
	tick := time.NewTicker(patience / ticks)
	defer tick.Stop()
	longest := clientPatience + 2*PingNeeds(s)
	for silent, unheard, heard := 0, 0, int64(0); silent < ticks; {
		select {
		case err := <-done:
			if err == nil || err == redis.Nil {
				return nil
			}
			failure := Failure(err)
			if failure.Elsewhere || failure.Outcome == retry.Executed && failure.Answered || a.isClosed() {
				return nil
			}
			return failure
		case <-tick.C:
			silent++
			unheard++
			if now := a.heard.Load(); now != heard {
				silent, unheard, heard = 0, 0, now
			} else if !a.waiting.Load() {
				silent = 0
			}
			if time.Duration(unheard)*patience/ticks >= longest {
				return &retry.Error{Err: errPatience, Outcome: retry.NotExecuted, Local: true}
			}
		}
	}
	if a.isClosed() {
		return nil
	}
	err := fmt.Errorf("no reply from Redis, not even within %v on a new connection", patience)
	return &retry.Error{Err: Advise(err), Outcome: retry.NotExecuted, Silent: true}
}

// ask sends the command, and waits for the reply.
func (a *apart) ask(ctx context.Context, s Sender, key string, args []any) error {
	Refresh(ctx, s)
	cmd := Once{redis.NewCmd(ctx, args...)}
	node, err := Node(ctx, s, key)
	if err != nil {
		return err
	}
	from := optionsOf(node)
	if from == nil { // it is not known how to connect
		a.waiting.Store(true)
		return Process(ctx, node, cmd)
	}
	o := *from
	a.sentinel.Store(from.Addr == failover)
	o.Dialer = a.dialer(from)
	// One connection is enough. If as many dials have failed as the pool has connections, go-redis goes on dialing in a
	// goroutine that outlasts Close by a second; two may fail.
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 3, 0, 0, 0
	o.MaxRetries, o.DialerRetries, o.Limiter = -1, 1, nil
	o.ReadTimeout, o.WriteTimeout = -1, -1 // silence is what counts
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	a.mu.Lock()
	a.rdb, a.node = redis.NewClient(&o), node
	a.mu.Unlock()
	if err = Process(ctx, a.rdb, cmd); err != nil && a.atSentinel() {
		// No time was left to connect to the server, if a Sentinel does not reply. From then on go-redis asks another.
		err = Process(ctx, a.rdb, Once{redis.NewCmd(ctx, args...)})
	}
	return err
}

// isClosed reports whether the client that a was made from is closed, so that no call can be made.
func (a *apart) isClosed() bool {
	a.mu.Lock()
	node := a.node
	a.mu.Unlock()
	return node != nil && isClosed(node)
}

// failover is what go-redis has for an address in a client that asks Sentinel for it.
const failover = "FailoverClient"

// optionsOf returns the options of a client of one server, or nil if they are not known.
func optionsOf(s Sender) *redis.Options {
	if c, ok := s.(interface{ Options() *redis.Options }); ok {
		return c.Options()
	}
	return nil
}

// atSentinel reports whether it connects through Sentinel and has not got further.
func (a *apart) atSentinel() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sentinel.Load() && len(a.conns) == 0
}

// close closes the connection. A call in flight fails; close does not wait for it.
func (a *apart) close() {
	a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, c := range a.conns {
		_ = c.Close()
	}
	if a.rdb != nil {
		_ = a.rdb.Close()
	}
}

// hear notes that something has come back.
func (a *apart) hear() {
	a.heard.Add(1)
	a.waiting.Store(false)
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns a dialer like that of o, which notes what it sends. If the dialer of o does not pass ctx on to package net, nothing
// is known of it until it returns: it may wait for a name to be resolved. The one that go-redis makes for TLS is replaced, since the
// handshake is a reply that is waited for, too.
func (a *apart) dialer(o *redis.Options) dialer {
	dial, secure := o.Dialer, dialsTLS(o)
	if secure {
		dial = (&net.Dialer{Timeout: o.DialTimeout, KeepAlive: 5 * time.Minute}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			ConnectStart: func(string, string) { a.waiting.Store(!a.sentinel.Load()) },
			ConnectDone:  func(string, string, error) { a.hear() },
		}))
		defer cancel()
		defer context.AfterFunc(a.ctx, cancel)()
		c, err := dial(ctx, network, addr)
		a.hear()
		if err != nil {
			return nil, err
		}
		if c, err = a.wire(c); err != nil || !secure {
			return c, err
		}
		return handshake(ctx, c, addr, o.TLSConfig)
	}
}

// wire returns c as a connection of a, whose traffic is noted, unless a is closed.
func (a *apart) wire(c net.Conn) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	a.conns = append(a.conns, c)
	return wired{c, a}, nil
}

// dialsTLS reports whether the dialer of o is the one that go-redis makes for TLS. It may be a copy in the function that makes it.
func dialsTLS(o *redis.Options) bool {
	if o.TLSConfig == nil {
		return false
	}
	name := runtime.FuncForPC(reflect.ValueOf(o.Dialer).Pointer()).Name()
	return strings.HasPrefix(name, reflect.TypeFor[redis.Options]().PkgPath()+".") && strings.Contains(name, "NewDialer")
}

// handshake returns c with TLS, as tls.Dialer does.
func handshake(ctx context.Context, c net.Conn, addr string, config *tls.Config) (net.Conn, error) {
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}

// A wired is a connection whose traffic an apart notes.
type wired struct {
	net.Conn
	a *apart
}

// Read implements net.Conn. Part of a reply may have come, and the rest not.
func (c wired) Read(p []byte) (int, error) {
	c.a.waiting.Store(true)
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.a.hear()
	}
	return n, err
}

// Write implements net.Conn.
func (c wired) Write(p []byte) (int, error) {
	c.a.waiting.Store(true)
	return c.Conn.Write(p)
}
