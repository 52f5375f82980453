package ratelimiter

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A patient is a limiter of ten permits an hour, one of which is granted, on a server of its own that can be
// made to reject commands.
type patient struct {
	t     *testing.T
	ctx   context.Context
	s     *redistest.Server
	dir   string
	admin *redis.Client
	rdb   *redis.Client
	watch *watch
	c     *Client
	l     *RateLimiter
}

func newPatient(t *testing.T, opts ...func(*redis.Options)) *patient {
	t.Helper()
	p := &patient{t: t, ctx: context.Background(), dir: filepath.Join(t.TempDir(), "data")}
	require.NoError(t, os.Mkdir(p.dir, 0o700))
	p.s = redistest.Start(t, "--dir", p.dir, "--save", "3600", "1000000", "--enable-debug-command", "yes")
	p.admin = p.s.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = -1, -1 })
	p.rdb = p.s.Client(t, opts...)
	p.watch = watched(p.rdb)
	p.c = newClient(t, p.rdb)
	t.Cleanup(func() { _ = p.c.Close() })
	p.l = p.c.RateLimiter("patient")
	require.NoError(t, p.l.SetRate(p.ctx, overall(10, time.Hour)))
	p.granted(1)
	return p
}

func (p *patient) granted(permits int64) {
	p.t.Helper()
	r, err := p.l.Allow(p.ctx, permits)
	require.NoError(p.t, err)
	require.True(p.t, r.Granted)
}

// do does not end the test, because goroutines of the engine call it, too.
func (p *patient) do(args ...any) { assert.NoError(p.t, p.admin.Do(p.ctx, args...).Err(), "%v", args) }

// says polls until PING gets that reply.
func (p *patient) says(answer string) {
	p.t.Helper()
	soon(p.t, answer, func() bool {
		return redis.HasErrorPrefix(p.admin.Ping(p.ctx).Err(), answer)
	})
}

// parameter sets a parameter, and returns a function that sets it back.
func parameter(name, bad, good string) func(p *patient) func() {
	return func(p *patient) func() {
		p.do("CONFIG", "SET", name, bad)
		return func() { p.do("CONFIG", "SET", name, good) }
	}
}

// rejections make a server reject what it would do at another time. Each returns a function that ends it.
var rejections = map[string]func(p *patient) (end func()){
	"OOM": parameter("maxmemory", "1", "0"),
	"NOREPLICAS": func(p *patient) func() {
		redistest.Since(p.t, 6, 2, "NOREPLICAS in a script")
		return parameter("min-replicas-to-write", "1", "0")(p)
	},
	"READONLY": func(p *patient) func() {
		p.do("REPLICAOF", "127.0.0.1", "1") // nothing listens there, so the data stays
		return func() { p.do("REPLICAOF", "NO", "ONE") }
	},
	"MASTERDOWN": func(p *patient) func() {
		p.do("CONFIG", "SET", "replica-serve-stale-data", "no")
		p.do("REPLICAOF", "127.0.0.1", "1")
		return func() { p.do("REPLICAOF", "NO", "ONE") }
	},
	"MISCONF": func(p *patient) func() {
		p.do("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
		assert.NoError(p.t, os.RemoveAll(p.dir)) // the server's working directory, so it cannot create files
		if !failedSave(p) {
			p.do("BGSAVE")
			soon(p.t, "a failed save", func() bool { return failedSave(p) })
		}
		return func() { p.do("CONFIG", "SET", "stop-writes-on-bgsave-error", "no") }
	},
	"BUSY": func(p *patient) func() {
		p.do("CONFIG", "SET", "lua-time-limit", "1")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = p.admin.Eval(p.ctx, "while true do end", nil).Err()
		}()
		p.says("BUSY")
		return func() { p.do("SCRIPT", "KILL"); <-ended }
	},
	"LOADING": func(p *patient) func() {
		redistest.Since(p.t, 7, 0, "loading-process-events-interval-bytes")
		p.do("DEBUG", "POPULATE", "3000", "key", "100")
		p.do("CONFIG", "SET", "key-load-delay", "1000") // µs
		p.do("CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.do("DEBUG", "RELOAD")
		}()
		p.says("LOADING")
		return func() { p.do("CONFIG", "SET", "key-load-delay", "0"); <-ended }
	},
}

// isReply reports whether err is the error reply that begins with a word. Redis before 7.0 puts the name of the script and
// the queue before an error that a command of the script had.
func isReply(err error, word string) bool {
	return redis.HasErrorPrefix(err, word) || strings.Contains(err.Error(), ": -"+word+" ") || strings.Contains(err.Error(), ": "+word+" ")
}

func failedSave(p *patient) bool {
	return strings.Contains(p.admin.Info(p.ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
}

// Redis rejects for a while. If it rejects once, no caller notices. If it rejects for longer, callers that do
// not wait get the reason, and callers that wait still do not notice. A rejection takes no permits.
func TestRejectionsOfRealServers(t *testing.T) {
	redistest.NeedReal(t)
	tests := map[string]func(*testing.T){}
	for name, begin := range rejections {
		tests[name] = func(t *testing.T) { rejectedAndCured(t, newPatient(t), name, begin) }
	}
	abreast(t, tests)
}

func rejectedAndCured(t *testing.T, p *patient, says string, begin func(p *patient) func()) {
	for i, call := range []func() error{
		func() error { _, err := p.l.Allow(p.ctx, 1); return err },
		func() error { return p.l.Acquire(p.ctx, 1) },
	} {
		end := begin(p)
		p.watch.cure.Store(&end)
		require.NoError(t, call(), "sent again")
		require.EqualValues(t, i+1, p.watch.failed.Load())
		require.NoError(t, accounts(p.admin, p.l, 10, int64(2+i)))
	}

	looks := newClient(t, p.rdb, WithRecheck(20*time.Millisecond)) // another process, whose waiter asks while Redis rejects
	defer looks.Close()
	full := looks.RateLimiter("full")
	require.NoError(t, full.SetRate(p.ctx, overall(1, time.Hour)))
	require.NoError(t, full.Acquire(p.ctx, 1))
	waits, sleeps := make(chan error, 1), make(chan error, 1)
	go func() { sleeps <- full.Acquire(p.ctx, 1) }()
	soon(t, "a waiter that has been rejected", func() bool { return asleep(full) == 1 })
	end := begin(p)
	go func() { waits <- p.l.Acquire(p.ctx, 2) }()
	for range 2 {
		_, err := p.l.Allow(p.ctx, 3)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, p.l.Name())
		var re redis.Error
		require.ErrorAs(t, err, &re)
		require.True(t, isReply(re, says), "%v", re)
	}
	require.GreaterOrEqual(t, p.watch.failed.Load(), int64(2+retry.MaxAttempts))
	require.Empty(t, waits)
	end()
	cured := time.Now()
	require.NoError(t, inTime(t, waits))
	t.Log("served", time.Since(cured), "after the end")
	p.granted(1)
	require.NoError(t, accounts(p.admin, p.l, 10, 6))
	require.Empty(t, sleeps)
	soon(t, "the other process finds that Redis is back", func() bool { return full.Release(p.ctx, 1) == nil })
	require.NoError(t, inTime(t, sleeps))
	require.NoError(t, accounts(p.admin, full, 1, 1))
}

// Redis that is out of memory lets a script go on that began by freeing something. Then the grant counts.
func TestOutOfMemoryIsNothingHalfDone(t *testing.T) {
	redistest.NeedReal(t)
	p := newPatient(t)
	key := p.l.redis.Keys.Permits[Overall]
	member := p.admin.ZRange(p.ctx, key, 0, -1).Val()[0]
	p.do("ZINCRBY", key, "-3600000", member) // an hour ago: its permit is back
	p.do("CONFIG", "SET", "maxmemory", "1")
	p.granted(10)
	_, err := p.l.Allow(p.ctx, 1)
	require.NoError(t, err, "a rejection writes nothing")
	p.do("CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, accounts(p.admin, p.l, 10, 10))
}

// An error that would not change however often the call is sent goes at once to every caller, unchanged.
func TestErrorsOfRealServersThatAreNotSentAgain(t *testing.T) {
	redistest.NeedReal(t)
	tests := map[string]func(*testing.T){}
	for says, c := range map[string]struct{ begin, end func(p *patient) }{
		"NOPERM": {
			func(p *patient) { p.do("ACL", "SETUSER", "default", "-evalsha", "-eval") },
			func(p *patient) { p.do("ACL", "SETUSER", "default", "+evalsha", "+eval") },
		},
		"WRONGPASS": {
			func(p *patient) {
				p.do("CONFIG", "SET", "requirepass", "another")
				p.do("CLIENT", "KILL", "TYPE", "normal") // not the connection that asks
			},
			func(p *patient) { p.do("CONFIG", "SET", "requirepass", "") },
		},
		"WRONGTYPE": {
			func(p *patient) {
				p.do("RENAME", p.l.redis.Keys.Permits[Overall], "{patient}aside")
				p.do("SET", p.l.redis.Keys.Permits[Overall], "a string")
			},
			func(p *patient) { p.do("RENAME", "{patient}aside", p.l.redis.Keys.Permits[Overall]) },
		},
	} {
		tests[says] = func(t *testing.T) {
			if says == "NOPERM" {
				redistest.Since(t, 6, 0, "ACL")
			}
			if says == "WRONGPASS" {
				redistest.Since(t, 6, 0, "the reply "+says)
			}
			var opts []func(*redis.Options)
			if says == "WRONGPASS" {
				opts = append(opts, func(o *redis.Options) { o.Password = "some" }) // a server without a password accepts any
			}
			p := newPatient(t, opts...)
			c.begin(p)
			for i, call := range []func() error{
				func() error { _, err := p.l.Allow(p.ctx, 1); return err },
				func() error { _, err := p.l.TryAcquire(p.ctx, 1, time.Minute); return err },
				func() error { return p.l.Acquire(p.ctx, 1) },
			} {
				err := call()
				require.NotErrorIs(t, err, ErrUnavailable)
				require.ErrorContains(t, err, says)
				require.ErrorContains(t, err, p.l.Name())
				var re redis.Error
				require.ErrorAs(t, err, &re)
				require.True(t, isReply(re, says), "%v", re)
				require.EqualValues(t, i+1, p.watch.failed.Load(), "sent once")
			}
			c.end(p)
			p.granted(1)
			require.NoError(t, accounts(p.admin, p.l, 10, 2))
		}
	}
	tests["no password"] = func(t *testing.T) {
		redistest.Since(t, 6, 0, "a new password that leaves connections alone")
		p := newPatient(t)
		p.do("CONFIG", "SET", "requirepass", "some")
		p.do("CLIENT", "KILL", "TYPE", "normal")
		_, err := p.l.Allow(p.ctx, 1)
		// To a command of more than ten words Redis since 6.2 does not say NOAUTH.
		require.Regexp(t, "unauthenticated|NOAUTH", err.Error())
		var re redis.Error
		require.ErrorAs(t, err, &re)
		require.NotErrorIs(t, err, ErrUnavailable)
		require.NoError(t, accounts(p.admin, p.l, 10, 1))
	}
	tests["closed by its owner"] = func(t *testing.T) {
		p := newPatient(t)
		require.NoError(t, p.rdb.Close())
		for range 2 {
			_, err := p.l.Allow(p.ctx, 1)
			require.ErrorIs(t, err, redis.ErrClosed)
			require.NotErrorIs(t, err, ErrUnavailable)
			require.ErrorIs(t, p.l.Acquire(p.ctx, 1), redis.ErrClosed)
		}
		require.NoError(t, accounts(p.admin, p.l, 10, 1))
	}
	abreast(t, tests)
}
