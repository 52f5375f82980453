// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/rights"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
	require.True(p.t, must(p.l.Allow(p.ctx, permits))(p.t).Granted)
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
	if says == "MASTERDOWN" {
		says = "READONLY" // is what such a replica says to the witness, whose command writes
	}
	for range 2 {
		_, err := p.l.Allow(p.ctx, 3)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, p.l.Name())
		var re redis.Error
		require.ErrorAs(t, err, &re)
		require.True(t, isReply(re, says), "%v", re)
	}
	require.Greater(t, p.watch.failed.Load(), int64(2), "asked, and rejected")
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
			begin: func(p *patient) { p.do("ACL", "SETUSER", "default", "-evalsha", "-eval") },
			end:   func(p *patient) { p.do("ACL", "SETUSER", "default", "+evalsha", "+eval") },
		},
		"WRONGTYPE": {
			begin: func(p *patient) {
				p.do("RENAME", p.l.redis.Keys.Permits[Overall], "{patient}aside")
				p.do("SET", p.l.redis.Keys.Permits[Overall], "a string")
			},
			end: func(p *patient) { p.do("RENAME", "{patient}aside", p.l.redis.Keys.Permits[Overall]) },
		},
	} {
		tests[says] = func(t *testing.T) {
			if says != "WRONGTYPE" {
				redistest.Since(t, 6, 0, "ACL")
			}
			p := newPatient(t)
			c.begin(p)
			for i, call := range []func() error{
				func() error { return errOf(p.l.Allow(p.ctx, 1)) },
				func() error { return errOf(p.l.TryAcquire(p.ctx, 1, time.Minute)) },
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
	tests["no password"] = func(t *testing.T) { // an outage, since it is wanted only now
		redistest.Since(t, 6, 0, "a new password that leaves connections alone")
		p := newPatient(t)
		p.do("CONFIG", "SET", "requirepass", "some")
		p.do("CLIENT", "KILL", "TYPE", "normal") // not the connection that asks
		_, err := p.l.Allow(p.ctx, 1)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "it wants a password: set Password")
		require.True(t, p.l.handle.Health().Down())
		p.do("CONFIG", "SET", "requirepass", "")
		require.NoError(t, p.l.Acquire(p.ctx, 1))
		require.NoError(t, accounts(p.admin, p.l, 10, 2))
	}
	tests["closed by its owner"] = func(t *testing.T) {
		p := newPatient(t)
		require.NoError(t, p.rdb.Close())
		for range 2 {
			err := p.l.Acquire(p.ctx, 1)
			require.ErrorIs(t, err, redis.ErrClosed)
			require.NotErrorIs(t, err, ErrUnavailable)
		}
		require.NoError(t, accounts(p.admin, p.l, 10, 1))
	}
	abreast(t, tests)
}

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
		"a server restarts": restarts,
		"too many clients":  tooManyClients,
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
	go func() {
		time.Sleep(100 * time.Millisecond) // the call for one permit has been sent, and does not wait for this one
		served <- p.l.Acquire(p.ctx, 2)
	}()
	_, err := p.l.Allow(p.ctx, 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NotZero(t, p.watch.failed.Load())
	require.Empty(t, served)
	goOn()
	require.NoError(t, inTime(t, served))
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

// setUser makes the user limiter, who may do what the rules say and nothing else.
func setUser(t *testing.T, admin *redis.Client, rules ...[]string) {
	t.Helper()
	redistest.Since(t, 7, 2, "an ACL with CLIENT SETINFO")
	args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}
	for _, list := range rules {
		for _, r := range list {
			args = append(args, r)
		}
	}
	require.NoError(t, admin.Do(context.Background(), args...).Err())
	require.NoError(t, admin.Do(context.Background(), "ACL", "LOG", "RESET").Err())
}

// rejectedByACL returns the commands and keys that the server has rejected, without those by which go-redis tells of
// itself.
func rejectedByACL(t *testing.T, admin *redis.Client) (rejected []string) {
	t.Helper()
	log := must(admin.Do(context.Background(), "ACL", "LOG").Slice())(t)
	for _, entry := range log {
		object := ""
		switch e := entry.(type) {
		case map[any]any:
			object = fmt.Sprint(e["object"])
		case []any:
			for i := 0; i+1 < len(e); i += 2 {
				if e[i] == "object" {
					object = fmt.Sprint(e[i+1])
				}
			}
		}
		if !strings.HasPrefix(object, "client|") {
			rejected = append(rejected, object)
		}
	}
	return rejected
}

// everyScript runs the operations that everyOperation does not, down to those that only some states need.
func everyScript(t *testing.T, ctx context.Context, c *Client, admin redis.UniversalClient, names [2]string, typ RateType) {
	t.Helper()
	l, other := c.RateLimiter(names[0]), c.RateLimiter(names[1])
	rate := Rate{Type: typ, Permits: 1000, Interval: time.Hour, MinGap: time.Millisecond, KeepAlive: 2 * time.Hour}
	require.NoError(t, l.SetRate(ctx, rate))
	require.NoError(t, other.SetRate(ctx, rate))
	must(l.Peek(ctx, 1))(t)
	require.True(t, must(c.TryAcquireAll(ctx, 0, Demand{l, 1}, Demand{other, 1}))(t).Granted)
	must(l.Admin().Inspect(ctx))(t)
	for i := range 100 { // a hash that others write to is read field by field
		require.NoError(t, admin.HSet(ctx, l.redis.Keys.Hash, fmt.Sprint("field ", i), i).Err())
	}
	must(l.Admin().Inspect(ctx))(t)
	require.NoError(t, l.CoolDown(ctx, time.Now().Add(time.Minute), Reopen(time.Minute)))
	must(l.Admin().CoolDownUntil(ctx))(t)
	require.True(t, must(l.Admin().LiftCoolDown(ctx))(t))

	// A large set is settled by heal; members ahead of the clock, expired ones and a lost value are healed.
	rate.MinGap = 0
	require.NoError(t, l.SetRate(ctx, rate))
	var members []redis.Z
	now := float64(time.Now().UnixMilli())
	for i := range 2200 {
		members = append(members, redis.Z{Score: now + float64(i-1100)*10_000, Member: grant(1)})
	}
	require.NoError(t, admin.ZAdd(ctx, l.redis.Keys.Permits[typ], members...).Err())
	require.NoError(t, admin.Set(ctx, l.redis.Keys.Value[typ], "lost", 0).Err())
	must(l.AvailablePermits(ctx))(t)
	must(l.Allow(ctx, 1000))(t)
	rate.Permits = 100
	require.NoError(t, l.SetRate(ctx, rate, KeepState()))
	must(l.Allow(ctx, 100))(t)
	require.NoError(t, healed(ctx, l, permit.Type(typ), permit.Checked))

	// A waiter's tripwire, a reservation, and the refund of a caller that left.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.Acquire(short, 100), context.DeadlineExceeded)
	v := permit.Reservation{Type: permit.Type(typ), ID: c.redis.NewID(), Want: 3}
	a := must(other.redis.Reserve(ctx, v))(t)
	v.Held, v.Want, v.Ahead = a.Held, 100, true
	a = must(other.redis.Reserve(ctx, v))(t)
	v.Held, v.Want = a.Held, 0
	must(other.redis.Reserve(ctx, v))(t)
	require.NoError(t, other.redis.Refund(ctx, permit.Type(typ), permit.Grant{ID: c.redis.NewID().Run(0), Permits: 2, Keep: 1}))
	require.NoError(t, l.Release(ctx, 5))
	for _, l := range []*RateLimiter{l, other} {
		must(l.Admin().Delete(ctx))(t)
	}
}

// TestLeastPrivilegeOnACluster has a user who may do exactly what package rights says run every operation on a cluster, without
// being rejected anything, with names that have braces or none.
func TestLeastPrivilegeOnACluster(t *testing.T) {
	redistest.NeedReal(t)
	rules := rights.Rules(append(rights.Of(rights.Administer, "small", "c", permit.Overall), rights.Connection(0, true)...))
	s := redistest.StartCluster(t)
	o := &redis.ClusterOptions{Username: "limiter", Password: "secret"}
	for _, node := range s.Nodes() {
		setUser(t, node.Client(t), slices.Concat(rights.Patterns("small"), rights.Patterns("small2"), rights.Patterns("a{b}"), rights.Patterns("{b}2")), rules)
		o.Addrs = append(o.Addrs, node.Addr())
	}
	rdb, ctx := redis.NewClusterClient(o), context.Background()
	defer rdb.Close()
	c := newClient(t, rdb)
	defer c.Close()
	for _, typ := range []RateType{Overall, PerClient} {
		everyOperation(t, ctx, c.RateLimiter("small"), typ)
		everyOperation(t, ctx, c.RateLimiter("a{b}"), typ)
		everyScript(t, ctx, c, s.Client(t), [2]string{"small", "small2"}, typ)
		everyScript(t, ctx, c, s.Client(t), [2]string{"a{b}", "{b}2"}, typ)
	}
	_, err := c.RateLimiter("other").Allow(ctx, 1)
	require.ErrorIs(t, err, ErrDenied)
	require.ErrorContains(t, err, `["other" "{other}:value" "{other}:permits"]`)
	var rejected []string
	for _, node := range s.Nodes() {
		rejected = append(rejected, rejectedByACL(t, node.Client(t))...)
	}
	require.Equal(t, []string{"other"}, rejected)
}

// TestServersThatKnowLittle runs every operation on a server that rejects HELLO and CLIENT, as proxies and older servers do,
// with the options that docs/production.md gives for them, and with go-redis' own. go-redis sends HELLO in any case, and does
// without it when that is rejected.
func TestServersThatKnowLittle(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "INFO errorstats")
	for _, o := range []redis.Options{{Protocol: 2, DisableIdentity: true}, {}} {
		t.Run(fmt.Sprint("protocol ", o.Protocol), func(t *testing.T) {
			s := redistest.Start(t, "--rename-command", "HELLO", "", "--rename-command", "CLIENT", "", "--requirepass", "secret")
			o.Addr, o.Password = s.Addr(), "secret"
			rdb := redis.NewClient(&o)
			defer rdb.Close()
			calls := redistest.HoldToProxyRules(t, rdb)
			ctx := context.Background()
			connected := must(rdb.Info(ctx, "errorstats").Result())(t)
			require.Equal(t, o.DisableIdentity, strings.Contains(connected, "errorstat_ERR:count=1\r"), connected)
			c := newClient(t, rdb)
			defer c.Close()
			for _, typ := range []RateType{Overall, PerClient} {
				everyOperation(t, ctx, c.RateLimiter("small"), typ)
				everyScript(t, ctx, c, rdb, [2]string{"a{b}", "{b}2"}, typ)
			}
			require.Greater(t, calls.Load(), int64(20))
		})
	}
}

// A holder does what a role is for, as a user of an ACL, and collects the errors. Its limiter is brought into states by admin.
type holder struct {
	t     *testing.T
	ctx   context.Context
	c     *Client
	admin *redis.Client
	typ   RateType
	l     *RateLimiter
	errs  []error
}

// did records the error of a call; others see to what it returns.
func did[T any](h *holder) func(T, error) T {
	return func(v T, err error) T {
		h.errs = append(h.errs, err)
		return v
	}
}

func (h *holder) do(args ...any) {
	h.t.Helper()
	require.NoError(h.t, h.admin.Do(h.ctx, args...).Err(), "%v", args)
}

func (h *holder) key(i int) string { return h.l.redis.Keys.Of(permit.Type(h.typ))[i] }

// members puts members into the set, some that have expired and some that lie ahead of the clock.
func (h *holder) members(n int) {
	var list []redis.Z
	now := float64(time.Now().UnixMilli())
	for i := range n {
		list = append(list, redis.Z{Score: now + float64(i-n/2)*10_000, Member: grant(1)})
	}
	require.NoError(h.t, h.admin.ZAdd(h.ctx, h.key(2), list...).Err())
}

// acquire does all that a service does with limiters, down to what only some states need.
func (h *holder) acquire() {
	l, ctx := h.l, h.ctx
	rate := Rate{Type: h.typ, Permits: 1000, Interval: time.Hour, MinGap: time.Millisecond, KeepAlive: 2 * time.Hour}
	did[bool](h)(l.TrySetRate(ctx, rate))
	did[Rate](h)(l.Rate(ctx))
	did[bool](h)(l.Admin().Exists(ctx))
	did[time.Duration](h)(l.Admin().TTL(ctx))
	did[time.Time](h)(l.Admin().ExpireTime(ctx))
	h.errs = append(h.errs, h.c.Ping(ctx))
	did[Result](h)(l.Allow(ctx, 1))
	did[Result](h)(l.Peek(ctx, 1))
	did[AllResult](h)(h.c.TryAcquireAll(ctx, 0, Demand{l, 1}, Demand{h.c.RateLimiter("{" + l.Name() + "}2"), 1}))
	did[int64](h)(l.AvailablePermits(ctx))
	for i := range 100 { // a hash that others write to is read field by field
		if h.admin.HLen(ctx, l.Name()).Val() > 0 {
			h.do("HSET", l.Name(), fmt.Sprint("field ", i), i)
		}
		if i == 0 || i == 99 {
			did[State](h)(l.Admin().Inspect(ctx))
		}
	}
	h.do("HDEL", l.Name(), "minGap")
	h.errs = append(h.errs, l.CoolDown(ctx, time.Now().Add(time.Millisecond)))
	h.errs = append(h.errs, l.CoolDown(ctx, time.Now().Add(time.Minute), Reopen(time.Minute)))
	did[time.Time](h)(l.Admin().CoolDownUntil(ctx))
	h.errs = append(h.errs, l.CoolDown(ctx, time.Now().Add(time.Millisecond)))
	time.Sleep(2 * time.Millisecond)
	did[Result](h)(l.Allow(ctx, 999))
	did[Result](h)(l.Allow(ctx, 1000))
	h.acquireMore()
}

// acquireMore goes on with large sets, a lost value and no TTL, and with callers that wait and leave.
func (h *holder) acquireMore() {
	l, ctx := h.l, h.ctx
	h.members(2200)
	h.do("SET", h.key(1), "lost")
	did[int64](h)(l.AvailablePermits(ctx))
	did[Result](h)(l.Allow(ctx, 1000))
	h.errs = append(h.errs, healed(ctx, l, permit.Type(h.typ), permit.Checked))
	h.do("PERSIST", l.Name())
	h.do("HSET", l.Name(), "keepAliveTime", 0)
	h.do("PEXPIRE", l.Name(), 3_600_000)
	did[Result](h)(l.Allow(ctx, 1))
	h.do("PERSIST", l.Name())
	did[Result](h)(l.Allow(ctx, 1))
	h.do("ZREMRANGEBYRANK", h.key(2), 0, -1)
	h.do("SET", h.key(1), 999)
	h.do("HDEL", l.Name(), "coolDown", "reopenUntil")
	h.do("ZADD", h.key(2), time.Now().Add(-2*time.Hour).UnixMilli(), grant(1)) // expired

	// A waiter that leaves, reservations, and a grant that is settled.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	did[Result](h)(l.Allow(ctx, 950))
	if err := l.Acquire(short, 100); !errors.Is(err, context.DeadlineExceeded) {
		h.errs = append(h.errs, err)
	}
	v := permit.Reservation{Type: permit.Type(h.typ), ID: h.c.redis.NewID(), Want: 3}
	a := did[permit.Reserved](h)(l.redis.Reserve(ctx, v))
	v.Held, v.Want, v.Ahead = a.Held, 100, true
	a = did[permit.Reserved](h)(l.redis.Reserve(ctx, v))
	v.Held, v.Want = a.Held, 0
	did[permit.Reserved](h)(l.redis.Reserve(ctx, v))
	h.errs = append(h.errs, l.redis.Refund(ctx, permit.Type(h.typ), permit.Grant{ID: h.c.redis.NewID().Run(0), Permits: 2, Keep: 1}))
}

// administer changes the limiter in every way.
func (h *holder) administer() {
	l, ctx := h.l, h.ctx
	rate := Rate{Type: h.typ, Permits: 1000, Interval: time.Hour}
	h.errs = append(h.errs, l.SetRate(ctx, rate))
	did[Result](h)(l.Allow(ctx, 5))
	h.errs = append(h.errs, l.Release(ctx, 2), l.Admin().Heal(ctx))
	h.members(300)
	rate.Permits = 10
	did[bool](h)(l.UpdateRate(ctx, rate, KeepState()))
	did[bool](h)(l.Admin().Expire(ctx, time.Hour))
	did[bool](h)(l.Admin().ClearExpire(ctx))
	h.errs = append(h.errs, l.CoolDown(ctx, time.Now().Add(time.Hour)))
	did[bool](h)(l.Admin().LiftCoolDown(ctx))
	for _, err := range l.Admin().Clients(ctx) {
		h.errs = append(h.errs, err)
	}
	did[bool](h)(l.Admin().Delete(ctx))
}

// asUser makes the user limiter, who has the given rules and nothing else, does what the roles up to the given one are for, and returns
// what the server has rejected, and the errors.
func asUser(t *testing.T, admin *redis.Client, role rights.Role, name string, db int, rules []string) ([]string, error) {
	ctx := t.Context()
	args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}
	for _, r := range rules {
		args = append(args, r)
	}
	require.NoError(t, admin.Do(ctx, args...).Err())
	require.NoError(t, admin.Do(ctx, "ACL", "LOG", "RESET").Err())
	require.NoError(t, admin.ScriptFlush(ctx).Err())
	rdb := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limiter", Password: "secret", DB: db, MaxRetries: -1,
		DisableIdentity: true})
	defer rdb.Close()
	// One client keeps the permits of its clients forever.
	h := &holder{t: t, ctx: ctx, admin: admin}
	for i, typ := range []RateType{Overall, PerClient, PerClient} {
		var opts []Option
		if i == 2 {
			opts = append(opts, WithClientKeyTTL(0))
		}
		require.NoError(t, admin.Del(ctx, append(admin.Keys(ctx, "*").Val(), "none")...).Err())
		full := newClient(t, admin)
		require.NoError(t, full.RateLimiter("{"+name+"}2").SetRate(ctx, Rate{Permits: 1000, Interval: time.Hour, Type: typ}))
		require.NoError(t, full.Close())
		h.c, h.typ = newClient(t, rdb, opts...), typ
		h.l = h.c.RateLimiter(name)
		h.acquire()
		if role == rights.Administer {
			h.administer()
		}
		require.NoError(t, h.c.Close())
	}
	return rejectedByACL(t, admin), errors.Join(h.errs...)
}

// TestRights makes users who may do exactly what package rights says that a role needs, in a database other than the first. Each does all that
// its role is for, and is rejected nothing; a user who lacks any one of the rules gets ErrDenied, which names what is denied.
func TestRights(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 0, "ACL")
	s := redistest.Start(t, "--save", "")
	admin := s.Client(t, func(o *redis.Options) { o.DB = 3 })
	const name = "orders"
	keys := []string{"~orders", "~{orders}:value", "~{orders}:permits", "~{orders}:ahead", "~{orders}:value:*", "~{orders}:permits:*", "~{orders}:ahead:*",
		"~{orders}2", "~{orders}2:*"}
	var ofAcquire []string
	for _, role := range []rights.Role{rights.Acquire, rights.Administer} {
		rules := slices.Concat(keys, rights.Rules(slices.Concat(rights.Of(role, name, "c", permit.Overall), rights.Connection(3, false))))
		rejected, err := asUser(t, admin, role, name, 3, rules)
		require.NoError(t, err, role)
		require.Empty(t, rejected, role)
		for i, rule := range rules {
			if role == rights.Administer && slices.Contains(ofAcquire, rule) {
				continue // the other role needs it, too
			}
			rejected, err := asUser(t, admin, role, name, 3, slices.Delete(slices.Clone(rules), i, i+1))
			require.ErrorIs(t, err, ErrDenied, "%v without %s", role, rule)
			require.NotEmpty(t, rejected, "%v without %s", role, rule)
			if key, ok := strings.CutPrefix(rule, "~"); ok {
				require.ErrorContains(t, err, strings.TrimSuffix(key, "*"), "%v without %s", role, rule)
			}
		}
		ofAcquire = rules
	}
}
