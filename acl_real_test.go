package ratelimiter

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// documentedACL returns the rules of docs/design/protocol.md: those of a limiter, of a connection of go-redis, of one to a
// cluster, and of package limit.
func documentedACL(t *testing.T) (limiter, connection, cluster, algorithms []string) {
	t.Helper()
	doc, err := os.ReadFile("docs/design/protocol.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(doc), "## What a limiter needs of an ACL")
	require.True(t, ok)
	var lists [][]string
	indented := false
	for line := range strings.Lines(section) {
		was := indented
		if indented = strings.HasPrefix(line, "    +"); indented && !was {
			lists = append(lists, nil)
		}
		if indented {
			lists[len(lists)-1] = append(lists[len(lists)-1], strings.Fields(line)...)
		}
	}
	require.Len(t, lists, 4)
	return lists[0], lists[1], lists[2], lists[3]
}

// setUser makes the user limiter, who may do what the rules say and nothing else.
func setUser(t *testing.T, admin *redis.Client, keys []string, rules ...[]string) {
	t.Helper()
	redistest.Since(t, 7, 2, "an ACL with CLIENT SETINFO")
	args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}
	for _, k := range keys {
		args = append(args, "~"+k)
	}
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
	log, err := admin.Do(context.Background(), "ACL", "LOG").Slice()
	require.NoError(t, err)
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
	_, err := l.Peek(ctx, 1)
	require.NoError(t, err)
	r, err := c.TryAcquireAll(ctx, 0, Demand{l, 1}, Demand{other, 1})
	require.NoError(t, err)
	require.True(t, r.Granted)
	_, err = l.Inspect(ctx)
	require.NoError(t, err)
	for i := range 100 { // a hash that others write to is read field by field
		require.NoError(t, admin.HSet(ctx, l.redis.Keys.Hash, fmt.Sprint("field ", i), i).Err())
	}
	_, err = l.Inspect(ctx)
	require.NoError(t, err)
	require.NoError(t, l.CoolDown(ctx, time.Now().Add(time.Minute), Reopen(time.Minute)))
	_, err = l.CoolDownUntil(ctx)
	require.NoError(t, err)
	ok, err := l.LiftCoolDown(ctx)
	require.NoError(t, err)
	require.True(t, ok)

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
	_, err = l.AvailablePermits(ctx)
	require.NoError(t, err)
	_, err = l.Allow(ctx, 1000)
	require.NoError(t, err)
	rate.Permits = 100
	require.NoError(t, l.SetRate(ctx, rate, KeepState()))
	_, err = l.Allow(ctx, 100)
	require.NoError(t, err)
	require.NoError(t, l.redis.Heal(ctx, permit.Type(typ), permit.Checked))

	// A waiter's tripwire, a reservation, and the refund of a caller that left.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.Acquire(short, 100), context.DeadlineExceeded)
	v := permit.Reservation{Type: permit.Type(typ), ID: c.redis.NewID(), Want: 3}
	a, err := other.redis.Reserve(ctx, v)
	require.NoError(t, err)
	v.Held, v.Want, v.Ahead = a.Held, 100, true
	a, err = other.redis.Reserve(ctx, v)
	require.NoError(t, err)
	v.Held, v.Want = a.Held, 0
	_, err = other.redis.Reserve(ctx, v)
	require.NoError(t, err)
	require.NoError(t, other.redis.Refund(ctx, permit.Type(typ), permit.Grant{ID: c.redis.NewID().Run(0), Permits: 2, Keep: 1}))
	require.NoError(t, l.Release(ctx, 5))
	for _, l := range []*RateLimiter{l, other} {
		_, err = l.Delete(ctx)
		require.NoError(t, err)
	}
}

// TestLeastPrivilege checks that the ACL of docs/design/protocol.md suffices: a user who may do exactly that runs every
// operation, without being rejected anything. And each of its commands is one that the scripts or go-redis send.
func TestLeastPrivilege(t *testing.T) {
	redistest.NeedReal(t)
	limiter, connection, cluster, _ := documentedACL(t)
	keys := []string{"small", "{small}:*", "small2", "{small2}:*", "a{b}", "a{b}:*", "{b}2", "{b}2:*"}
	every := func(t *testing.T, rdb, admin redis.UniversalClient) {
		t.Helper()
		ctx := context.Background()
		c := newClient(t, rdb)
		defer c.Close()
		for _, typ := range []RateType{Overall, PerClient} {
			everyOperation(t, ctx, c.RateLimiter("small"), typ)
			everyOperation(t, ctx, c.RateLimiter("a{b}"), typ)
			everyScript(t, ctx, c, admin, [2]string{"small", "small2"}, typ)
			everyScript(t, ctx, c, admin, [2]string{"a{b}", "{b}2"}, typ)
		}
		_, err := c.RateLimiter("other").Allow(ctx, 1)
		require.ErrorContains(t, err, "NOPERM")
	}
	t.Run("a server", func(t *testing.T) {
		s := redistest.Start(t)
		admin := s.Client(t)
		setUser(t, admin, keys, limiter, connection, []string{"+scan"})
		// As a program makes it, and not as tests do, which leave out what go-redis says of itself.
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "limiter", Password: "secret"})
		defer rdb.Close()
		every(t, rdb, admin)
		require.Equal(t, []string{"other"}, rejectedByACL(t, admin))
	})
	t.Run("without SCAN", func(t *testing.T) {
		s := redistest.Start(t)
		admin := s.Client(t)
		setUser(t, admin, keys, limiter, connection)
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "limiter", Password: "secret"})
		defer rdb.Close()
		every(t, rdb, admin)
		require.Subset(t, []string{"other", "scan"}, rejectedByACL(t, admin))
	})
	t.Run("a cluster", func(t *testing.T) {
		s := redistest.StartCluster(t)
		o := &redis.ClusterOptions{Username: "limiter", Password: "secret"}
		for _, node := range s.Nodes() {
			setUser(t, node.Client(t), keys, limiter, connection, cluster, []string{"+scan"})
			o.Addrs = append(o.Addrs, node.Addr())
		}
		rdb := redis.NewClusterClient(o)
		defer rdb.Close()
		every(t, rdb, s.Client(t))
		var rejected []string
		for _, node := range s.Nodes() {
			rejected = append(rejected, rejectedByACL(t, node.Client(t))...)
		}
		require.Equal(t, []string{"other"}, rejected)
	})
	for _, cmd := range limiter { // each of them is needed
		name := strings.TrimPrefix(cmd, "+")
		used := name == "eval" || name == "evalsha" || name == "exists" || name == "pttl" || name == "hmget"
		for _, script := range allScripts() {
			used = used || strings.Contains(script.Src, "'"+strings.ToUpper(name)+"'")
		}
		require.True(t, used, cmd)
	}
}
