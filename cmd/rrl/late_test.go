// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// keys returns the keys of the limiter and its clients with what they hold.
func (b *sickbed) keys() map[string]string {
	b.Helper()
	ctx, held := b.Context(), map[string]string{}
	for _, key := range redistest.Must(b.rdb.Keys(ctx, "*"+b.base+"*").Result())(b) {
		switch b.rdb.Type(ctx, key).Val() {
		case "hash":
			held[key] = fmt.Sprint(b.rdb.HGetAll(ctx, key).Val())
		case "zset":
			held[key] = fmt.Sprint(b.rdb.ZRangeWithScores(ctx, key, 0, -1).Val())
		default:
			held[key] = b.rdb.Get(ctx, key).Val() // nothing of a list
		}
	}
	return held
}

// late runs all commands of an advice without a wait, as somebody does who has read it long ago.
func (b *sickbed) late(f advised) {
	b.Helper()
	run := func([]advisedStep) {}
	run = func(steps []advisedStep) {
		for _, s := range steps {
			b.script(s.Commands, false)
			run(s.Then)
		}
	}
	b.script(f.Commands, false)
	run(f.Then)
	run(f.Alternatives)
}

// TestLateAdvice has advice that somebody follows after the limiter has changed: who seemed dead has come back, or somebody has repaired the
// limiter, deleted it or set its type back. The commands do nothing any more.
func TestLateAdvice(t *testing.T) {
	const java, gone = "5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90", "285475da-9152-4c83-822a-67ee2f116a79"
	type do = func(*sickbed)
	other := func(b *sickbed) int { return map[bool]int{true: 1, false: 0}[b.client == ""] }
	hset := func(pairs ...any) do { return func(b *sickbed) { b.do(append([]any{"hset", b.name}, pairs...)...) } }
	deleted := func(b *sickbed) { b.do("del", b.name) }
	otherType := func(b *sickbed) { b.all = true; hset("type", other(b))(b) }
	back := func(b *sickbed) { hset("type", 1-other(b))(b) }
	left := func(b *sickbed) { // by a client, three hours ago
		k := redisson.NewKeys(b.name, gone)
		b.do("set", k.Value[ratelimiter.PerClient], 0)
		b.do("zadd", k.Permits[ratelimiter.PerClient], b.rdb.Time(b.Context()).Val().Add(-3*time.Hour).UnixMilli(), redisson.Member(false, redisson.RandomID(), 10))
	}
	granted := func(b *sickbed) {
		c := clienttest.New(b, b.rdb, ratelimiter.WithClientID(gone))
		defer func() { _ = c.Close() }()
		require.NoError(b, c.RateLimiter(b.name).Acquire(b.Context(), 7))
	}
	valueOf := func(b *sickbed) string { return redisson.NewKeys(b.name, gone).Value[ratelimiter.PerClient] }
	permitsOf := func(b *sickbed) string { return redisson.NewKeys(b.name, gone).Permits[ratelimiter.PerClient] }
	theirs := func(b *sickbed) {
		b.do("del", permitsOf(b))
		b.do("zadd", permitsOf(b), 3, "alice", 5, "bob")
	}
	both := []string{"", java}
	for what, c := range map[string]struct {
		check      string
		then, late do
		clients    []string
	}{
		"a client has come back":             {"dead-clients", left, granted, []string{java}},
		"the interval is longer":             {"dead-clients", left, hset("interval", 24*3_600_000), []string{java}},
		"the keys are of another program":    {"dead-clients", left, theirs, []string{java}},
		"and its value is text":              {"dead-clients", left, func(b *sickbed) { theirs(b); b.do("set", valueOf(b), "page 7") }, []string{java}},
		"and there is no set":                {"dead-clients", left, func(b *sickbed) { b.do("del", permitsOf(b), valueOf(b)); b.do("rpush", valueOf(b), "x") }, []string{java}},
		"and it adds to the members":         {"dead-clients", left, func(b *sickbed) { b.do("zadd", permitsOf(b), 3, "alice") }, []string{java}},
		"the hash is of another program":     {"dead-clients", left, func(b *sickbed) { deleted(b); hset("type", 1, "user", "alice")(b) }, []string{java}},
		"an empty type, another's hash":      {"malformed", hset("type", ""), func(b *sickbed) { deleted(b); hset("user", "alice")(b) }, both},
		"an empty keep-alive, another's":     {"malformed", hset("keepAliveTime", ""), func(b *sickbed) { deleted(b); hset("user", "alice")(b) }, both},
		"the dead client's limiter is gone":  {"dead-clients", left, deleted, []string{java}},
		"the type is set back":               {"other-type", otherType, back, both},
		"the type is set back, and in use":   {"other-type", func(b *sickbed) { b.all = true; left(b) }, func(b *sickbed) { otherType(b); granted(b) }, []string{""}},
		"with another type, the hash gone":   {"other-type", otherType, deleted, both},
		"type 7 is mended":                   {"malformed", hset("type", 7), back, both},
		"type 7 is mended to the other":      {"malformed", hset("type", 7), otherType, both},
		"type 7, the hash gone":              {"malformed", hset("type", 7), deleted, both},
		"type 7, the hash a list":            {"malformed", hset("type", 7), func(b *sickbed) { deleted(b); b.do("rpush", b.name, "x") }, both},
		"keep-alive 1.5 is mended":           {"malformed", hset("keepAliveTime", "1.5"), hset("keepAliveTime", 3_600_000), both},
		"keep-alive of bytes is mended":      {"malformed", hset("keepAliveTime", "a\x00b"), hset("keepAliveTime", 3_600_000), both},
		"keep-alive of letters is mended":    {"malformed", hset("keepAliveTime", "abc"), hset("keepAliveTime", 3_600_000), both},
		"keep-alive of letters, no hash":     {"malformed", hset("keepAliveTime", "abc"), deleted, both},
		"an empty keep-alive, no hash":       {"malformed", hset("keepAliveTime", ""), deleted, both},
		"keep-alive of letters, and no more": {"malformed", hset("keepAliveTime", "abc"), func(b *sickbed) { deleted(b); b.do("del", b.key(1), b.key(2)) }, both},
	} {
		for _, client := range c.clients {
			t.Run(strings.TrimSpace(what+" "+client), func(t *testing.T) {
				b := newSickbed(t, client)
				c.then(b)
				list := b.findings()
				require.Len(t, list, 1)
				require.Equal(t, c.check, list[0].Check)
				require.NotEmpty(t, append(list[0].Then, advisedStep{Commands: list[0].Commands})[0].Commands)
				c.late(b)
				before := b.keys()
				b.late(list[0])
				require.Equal(t, before, b.keys())
			})
		}
	}
}
