// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/rights"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestAccess takes each right from a user who has those of a role, and checks what is found, and that the command which is printed
// gives back what is missing.
func TestAccess(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 7, 0, "ACL DRYRUN")
	s := redistest.Start(t, "--appendonly", "yes")
	rdb, ctx := s.Client(t, func(o *redis.Options) { o.DB = 3 }), t.Context()
	d := &Doctor{Survey: survey.New(rdb)}
	ask := func(name string, role rights.Role) []Finding {
		r := redistest.Must(d.Access(ctx, "app", name, role))(t)
		require.Empty(t, r.Skipped)
		return r.Findings
	}
	user := func(rules ...string) {
		args := []any{"acl", "setuser", "app", "reset", "on", ">secret"}
		for _, r := range rules {
			args = append(args, r)
		}
		require.NoError(t, rdb.Do(ctx, args...).Err())
	}
	const name = "or ders*"
	for _, role := range []rights.Role{rights.Acquire, rights.Administer} {
		rules := append(rights.Patterns(name), rights.Rules(append(rights.Of(role, name, "c", permit.Overall), rights.Connection(3, false)...))...)
		user(rules...)
		require.Empty(t, ask(name, role))
		require.Empty(t, ask("", role))
		if role == rights.Acquire {
			f := ask(name, rights.Administer)
			require.Len(t, f, 1)
			require.Equal(t, []any{Warning, `the user "app" may not run zremrangebyscore, scan, which these need: SetRate, Clients`}, []any{f[0].Severity, f[0].Found})
		}
		for i, rule := range rules {
			user(slices.Delete(slices.Clone(rules), i, i+1)...)
			list := ask(name, role)
			require.NotEmpty(t, list, rule)
			require.Contains(t, strings.Join(words(list[0]), " "), rule)
			for _, f := range list {
				_, port, _ := strings.Cut(s.Addr(), ":")
				require.Len(t, f.Commands, 1)
				require.True(t, strings.HasPrefix(f.Fix, "redis-cli -h 127.0.0.1 -p "+port+" -n 3 acl setuser app "), f.Fix)
				args := []any{}
				for _, w := range words(f)[7:] {
					args = append(args, w)
				}
				require.NoError(t, rdb.Do(ctx, args...).Err())
			}
			require.Empty(t, ask(name, role), "what it says fixes it")
		}
	}
	require.Zero(t, rdb.DBSize(ctx).Val(), "nothing is run")

	// The keys of those who take permits ahead, and of clients, are easily forgotten.
	all := rights.Rules(append(rights.Of(rights.Administer, "a", "c", permit.Overall), rights.Connection(3, false)...))
	require.NoError(t, rdb.HSet(ctx, "a", "rate", 1, "interval", 1000, "type", 0).Err())
	user(append(all, "~a", "~{a}:value", "~{a}:permits")...)
	f := ask("a", rights.Administer)
	require.Len(t, f, 1)
	require.Equal(t, Critical, f[0].Severity)
	require.Contains(t, f[0].Found, `may not access ["{a}:ahead"`)
	require.Contains(t, f[0].Fix, "acl setuser app '~{a}:*'")
	user(append(all, "~a", "~{a}:value", "~{a}:permits", "~{a}:ahead")...)
	require.Empty(t, ask("a", rights.Acquire), "nobody has permits of its own")
	f = ask("a", rights.Administer)
	require.Len(t, f, 1)
	require.Regexp(t, `"\{a\}:value:\*".* which these need: .*Delete`, f[0].Found)

	// Who looks may not change what it finds.
	user(append(all, "~a")...)
	require.NoError(t, rdb.Do(ctx, "acl", "setuser", "eve", "reset", "on", ">secret", "~*", "+@read", "+@connection", "+info", "+acl|dryrun").Err())
	eve := s.Client(t, func(o *redis.Options) { o.DB, o.Username, o.Password = 3, "eve", "secret" })
	f = redistest.Must((&Doctor{Survey: survey.New(eve)}).Access(ctx, "app", "a", rights.Acquire))(t).Findings
	require.Len(t, f, 1)
	require.Empty(t, f[0].Commands)
	require.Len(t, f[0].Alternatives, 1)
	require.Equal(t, "ADMIN stands for a user that may run ACL SETUSER, which this one may not", f[0].Alternatives[0].If)
	require.Contains(t, f[0].Alternatives[0].Commands[0], " --user ADMIN acl setuser app '~{a}:*'")

	r := redistest.Must((&Doctor{Survey: survey.New(rdb)}).Access(ctx, "nobody", "", rights.Acquire))(t)
	require.Empty(t, r.Findings)
	require.Contains(t, r.Skipped[0].Why, "nobody")
}

// words splits the first command of a finding as a shell does.
func words(f Finding) (list []string) {
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+string(f.Commands[0])).Output()
	if err != nil {
		panic(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestDrift(t *testing.T) {
	w := newWard(t)
	w.do(rate(0))
	drift := ""
	want := permit.Rate{Permits: 10}
	d := &Doctor{Survey: survey.New(w.rdb), Drift: func(st *survey.State) (string, permit.Rate, Cmd) {
		require.Equal(t, w.name, st.Name)
		return drift, want, "fix it"
	}}
	both := func() (list []Finding) {
		one := redistest.Must(d.Limiter(w.ctx, w.name))(t)
		require.Equal(t, one.Findings, redistest.Must(d.All(w.ctx, survey.Query{Match: w.name + "*"}, 10, nil))(t).Findings)
		return one.Findings
	}
	require.Empty(t, both())
	drift = "another rate"
	list := both()
	require.Len(t, list, 1)
	require.Equal(t, []any{"drift", Warning, "fix it"}, []any{list[0].Check, list[0].Severity, list[0].Fix})
	want.KeepAlive = time.Hour // somebody may use it who does not renew the TTL that it would get
	for _, ttl := range []time.Duration{-1, 10 * time.Second} {
		w.do(hash("keepAliveTime", 0), value(10))
		if ttl > 0 {
			require.NoError(t, w.rdb.PExpire(w.ctx, w.name, ttl).Err())
			require.NoError(t, w.rdb.PExpire(w.ctx, "{"+w.name+"}:value", ttl).Err())
		}
		list = both()
		require.Equal(t, "if only Go and Redisson 3.38.0 or later use the limiter, which renew a TTL: fix it", list[len(list)-1].Fix)
		require.Empty(t, list[len(list)-1].Commands)
	}
	want.Type = permit.PerClient
	list = both()
	require.Equal(t, "if the permits in use may be forgotten, as they are with another type, and only Go and Redisson 3.38.0 or later use the limiter, which renew a TTL: fix it", list[len(list)-1].Fix)
	w.do(hash("rate", "x"))
	require.Equal(t, "malformed", both()[0].Check, "which has no rate to compare")
}

// TestHotLimiter looks at the counters that an LFU policy keeps.
func TestHotLimiter(t *testing.T) {
	redistest.NeedReal(t)
	server := redistest.Start(t, "--appendonly", "yes", "--lfu-log-factor", "0")
	w := &ward{t, t.Context(), server.Client(t), "hot", time.Now()}
	w.do(rate(0))
	use := func() {
		for range 300 {
			require.NoError(t, w.rdb.HGet(w.ctx, w.name, "rate").Err())
		}
	}
	use()
	require.Empty(t, w.findings("hot-key"), "nothing is counted")
	require.NoError(t, w.rdb.ConfigSet(w.ctx, "maxmemory-policy", "allkeys-lfu").Err())
	require.NoError(t, w.rdb.Del(w.ctx, w.name).Err())
	w.do(rate(0))
	require.Empty(t, w.findings("hot-key"))
	use()
	w.finds("hot-key", Info, "the LFU counter of the hash, which every call reads, is 2")
	r := redistest.Must((&Doctor{Survey: survey.New(w.rdb)}).All(w.ctx, survey.Query{}, 10, nil))(t)
	require.Len(t, r.Findings, 1)
	require.Equal(t, "hot-key", r.Findings[0].Check)
}

// TestIdle has limiters that somebody makes for each user and that nothing deletes.
func TestIdle(t *testing.T) {
	redistest.NeedReal(t) // miniredis looks at all keys for each command
	redistest.NoRace(t, "one reader at a time")
	w := newWard(t)
	base := w.name
	keep, member := true, "\x10abc\x01\x00\x00\x00habcdefgh\x01\x00\x00\x00" // of Go
	set := func(n int, ttl time.Duration, used time.Duration) {
		p := w.rdb.Pipeline()
		for i := range n {
			name := fmt.Sprint(base, "user:", i)
			p.Del(w.ctx, name, "{"+name+"}:permits", "{"+name+"}:value")
			p.HSet(w.ctx, name, "rate", 10, "interval", 60_000, "type", 0)
			if keep {
				p.HSet(w.ctx, name, "keepAliveTime", 0)
			}
			if used > 0 {
				p.Set(w.ctx, "{"+name+"}:value", 9, 0)
				p.ZAdd(w.ctx, "{"+name+"}:permits", redis.Z{Score: float64(w.now.Add(-used).UnixMilli()), Member: member})
			}
			for _, key := range []string{name, "{" + name + "}:value", "{" + name + "}:permits"} {
				if ttl > 0 {
					p.PExpire(w.ctx, key, ttl)
				}
			}
		}
		redistest.Must(p.Exec(w.ctx))(t)
	}
	find := func() []Finding {
		return redistest.Must((&Doctor{Survey: survey.New(w.rdb)}).All(w.ctx, survey.Query{Match: base + "*"}, 10_000, nil))(t).Findings
	}
	set(manyIdle, 0, 25*time.Hour)
	list := find()
	require.Len(t, list, 1)
	require.Equal(t, "idle", list[0].Check)
	require.Equal(t, fmt.Sprintf(`1000 of 1000 limiters that were looked at whose names begin with %q have no TTL, and their newest grants are older than a day`, base+"user:"), list[0].Found)
	require.Contains(t, list[0].Limiter, "user:")
	require.Len(t, list[0].Alternatives, 1)
	require.Contains(t, list[0].Alternatives[0].Commands[0], "--keep-alive 168h --write")
	set(1, 0, time.Hour)
	require.Empty(t, find(), "one is used")
	set(1, time.Hour, 25*time.Hour)
	require.Empty(t, find(), "one expires")
	set(1, 0, 0)
	require.Empty(t, find(), "one was never used, perhaps because it was made a moment ago")
	for writer, c := range map[string]struct {
		keep   bool
		member string
		why    string
	}{
		"3.34.1, and Go set the rate": {true, "\x10abcdefghabcdefgh\x01\x00\x00\x00", "there are members by Redisson 3.21.0 and later"},
		"3.20.1":                      {false, "\x08abcdefgh\x01\x00\x00\x00", "its hash is of Redisson before 3.38.0"},
		"an old Redisson set the rate, and Go acquires": {false, member, "its hash is of Redisson before 3.38.0"},
	} {
		keep, member = c.keep, c.member
		set(manyIdle, 0, 25*time.Hour)
		list = find()
		require.Len(t, list, 1, writer)
		require.Contains(t, list[0].Fix, c.why, writer)
		require.NotContains(t, list[0].Fix, "--keep-alive", writer)
		require.Empty(t, append(list[0].Alternatives, list[0].Then...), writer)
		require.Empty(t, list[0].Commands, writer)
	}
	keep = true
	set(manyIdle, 0, 0)
	require.Empty(t, find(), "none has a grant that shows when it was last used")
}
