package ratelimiter

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// impatient gives up quickly on a server that does not reply or does not accept.
func impatient(o *redis.Options) {
	o.ReadTimeout, o.DialTimeout, o.DialerRetries = 400*time.Millisecond, 400*time.Millisecond, 1
}

// Connections hang, break, or cannot be made.
func TestConnectionsOfRealServers(t *testing.T) {
	redistest.NeedReal(t)
	abreast(t, map[string]func(*testing.T){
		"paused by CLIENT PAUSE": func(t *testing.T) {
			redistest.Since(t, 6, 2, "CLIENT UNPAUSE")
			p := newPatient(t, impatient)
			hangs(p, func() { p.do("CLIENT", "PAUSE", "60000", "WRITE") }, func() { p.do("CLIENT", "UNPAUSE") })
			require.NoError(t, accounts(p.admin, p.l, 10, 3), "Redis drops what it had not begun")
		},
		"paused by SIGSTOP": func(t *testing.T) {
			p := newPatient(t, impatient)
			hangs(p, p.s.Pause, p.s.Resume)
			require.NoError(t, accounts(p.admin, p.l, 10, 3+1), "Redis runs what it was sent, each but once")
		},
		"killed in flight":  killedInFlight,
		"a server restarts": restarts,
		"the pool is empty": poolIsEmpty,
		"too many clients":  tooManyClients,
		"SCRIPT FLUSH":      flushed,
	})
}

// hangs asks a server that does not reply for one permit, which is not granted, and for two, which are granted
// when the server goes on.
func hangs(p *patient, pause, goOn func()) {
	t, served := p.t, make(chan error, 1)
	var conns [2 * retry.MaxAttempts]*redis.Conn // a connection made in the meantime gets no further than HELLO
	for i := range conns {
		conns[i] = p.rdb.Conn()
		soon(t, "a connection", func() bool {
			if conns[i].Ping(p.ctx).Err() == nil {
				return true
			}
			_ = conns[i].Close()
			conns[i] = p.rdb.Conn()
			return false
		})
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	pause()
	go func() { served <- p.l.Acquire(p.ctx, 2) }()
	_, err := p.l.Allow(p.ctx, 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.GreaterOrEqual(t, p.watch.failed.Load(), int64(retry.MaxAttempts+1))
	require.Empty(t, served)
	goOn()
	require.NoError(t, inTime(t, served))
}

// An operator, or a proxy, kills connections all the time. Callers that wait a little get no error.
func killedInFlight(t *testing.T) {
	p := newPatient(t)
	require.NoError(t, p.l.SetRate(p.ctx, overall(10_000, time.Hour)))
	ctx, cancel := context.WithCancel(p.ctx)
	var killing, callers sync.WaitGroup
	killing.Go(func() {
		for ctx.Err() == nil {
			p.do("CLIENT", "KILL", "TYPE", "normal")
			time.Sleep(5 * time.Millisecond)
		}
	})
	for range 8 {
		callers.Go(func() {
			for range 250 {
				if err := p.l.Acquire(p.ctx, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	cancel()
	killing.Wait()
	require.Positive(t, p.watch.failed.Load(), "connections broke in flight")
	t.Log(p.watch.failed.Load(), "of", p.watch.sent.Load(), "scripts failed")
	require.NoError(t, accounts(p.admin, p.l, 10_000, 2000))
}

func restarts(t *testing.T) {
	p := newPatient(t, impatient)
	p.do("CONFIG", "SET", "appendfsync", "always")
	p.do("SAVE")
	p.s.Kill()
	_, err := p.l.Allow(p.ctx, 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "dial", op.Op)
	served := make(chan error, 1)
	go func() { served <- p.l.Acquire(p.ctx, 1) }()
	p.s.Restart()
	require.NoError(t, inTime(t, served))
	p.granted(1)
	require.NoError(t, accounts(p.admin, p.l, 10, 3))
}

// A pool that is too small is a fault of this process. It does not make others wait.
func poolIsEmpty(t *testing.T) {
	p := newPatient(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 30*time.Millisecond })
	held := p.rdb.Conn()
	require.NoError(t, held.Ping(p.ctx).Err())
	served := make(chan error, 1)
	go func() { served <- p.l.Acquire(p.ctx, 1) }()
	_, err := p.l.Allow(p.ctx, 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, redis.ErrPoolTimeout)
	require.False(t, p.l.handle.Health().Down(), "Redis is there")
	require.NoError(t, held.Close())
	require.NoError(t, inTime(t, served))
	p.granted(1) // not before, because the other may hold the connection for longer than the pool waits
	require.NoError(t, accounts(p.admin, p.l, 10, 3))
}

func tooManyClients(t *testing.T) {
	p := newPatient(t, impatient)
	one := p.s.Client(t, func(o *redis.Options) { o.PoolSize, o.MaxRetries = 1, -1 })
	do := func(args ...any) { require.NoError(t, one.Do(p.ctx, args...).Err(), "%v", args) }
	do("CONFIG", "SET", "maxclients", "1")
	do("CLIENT", "KILL", "TYPE", "normal")
	served := make(chan error, 1)
	go func() { served <- p.l.Acquire(p.ctx, 1) }()
	_, err := p.l.Allow(p.ctx, 1)
	// Redis reports why and hangs up; a client that writes quickly sees only the latter.
	require.ErrorIs(t, err, ErrUnavailable)
	t.Log(err)
	require.Empty(t, served)
	do("CONFIG", "SET", "maxclients", "1000")
	require.NoError(t, inTime(t, served))
	p.granted(1)
	require.NoError(t, accounts(one, p.l, 10, 3))
}

// A hundred thousand acquires succeed while the script cache is emptied all the time.
func flushed(t *testing.T) {
	p := newPatient(t)
	require.NoError(t, p.l.SetRate(p.ctx, overall(200_000, time.Hour)))
	ctx, cancel := context.WithCancel(p.ctx)
	var flushing, callers sync.WaitGroup
	flushes, granted := 0, atomic.Int64{}
	flushing.Go(func() {
		for ; ctx.Err() == nil; flushes++ {
			p.do("SCRIPT", "FLUSH")
			time.Sleep(2 * time.Millisecond)
		}
	})
	for range 100 {
		callers.Go(func() {
			for range 1000 {
				if ok, err := p.l.TryAcquire(p.ctx, 1, 0); err != nil {
					t.Error(err)
				} else if ok {
					granted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	cancel()
	flushing.Wait()
	require.EqualValues(t, 100_000, granted.Load())
	t.Log(flushes, "flushes,", p.watch.sent.Load(), "scripts sent")
	require.NoError(t, accounts(p.admin, p.l, 200_000, 100_000))
}
