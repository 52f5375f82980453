// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// servers returns what the doctor finds of servers, a line each.
func servers(t *testing.T, rdb redis.UniversalClient) string {
	t.Helper()
	r := redistest.Must((&Doctor{Survey: survey.New(rdb)}).Servers(t.Context()))(t)
	require.Empty(t, r.Skipped)
	var text strings.Builder
	for _, f := range r.Findings {
		require.NotEmpty(t, f.Node)
		require.NotEmpty(t, f.Java)
		fmt.Fprintf(&text, "%s %s: %s\n", f.Severity, f.Check, f.Found)
	}
	return text.String()
}

func TestServers(t *testing.T) {
	redistest.NeedReal(t)
	healthy := redistest.Start(t, "--appendonly", "yes").Client(t)
	require.Empty(t, servers(t, healthy))

	bare := redistest.Start(t)
	require.Equal(t, "info server: neither RDB nor AOF is on\n", servers(t, bare.Client(t)))

	r := redistest.Must((&Doctor{Survey: survey.New(bare.Client(t))}).Servers(t.Context()))(t)
	require.NotContains(t, r.Findings[0].Java, "WithRate")
	require.Contains(t, r.Findings[0].Go, "a limiter with WithRate gets its rate back from the next call")

	evicting := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "2mb", "--maxmemory-policy", "allkeys-lru").Client(t)
	require.NotContains(t, servers(t, evicting), "evicted since")
	for _, c := range []struct{ policy, found string }{
		{"allkeys-lru", "warning server: maxmemory-policy is allkeys-lru with 2 MiB"}, {"allkeys-lru", " evicted since the start"},
		{"volatile-lru", "info server: maxmemory-policy is volatile-lru"}, {"noeviction", "of maxmemory are used, and the policy is noeviction"},
	} {
		require.NoError(t, evicting.ConfigSet(t.Context(), "maxmemory-policy", c.policy).Err())
		require.Contains(t, servers(t, evicting), c.found)
		for i := 0; c.policy == "allkeys-lru" && i < 300; i++ {
			require.NoError(t, evicting.Set(t.Context(), fmt.Sprint(i), strings.Repeat("x", 10_000), 0).Err())
		}
	}

	alone := redistest.Start(t, "--appendonly", "yes", "--min-replicas-to-write", "1").Client(t)
	require.Equal(t, "critical server: 0 good replicas, and min-replicas-to-write asks for 1\n", servers(t, alone))

	host, port, _ := strings.Cut(bare.Addr(), ":")
	replica := redistest.Start(t, "--appendonly", "yes", "--replicaof", host, port).Client(t)
	require.Contains(t, servers(t, replica), "critical server: a replica of "+bare.Addr())
}

func TestServersOfACluster(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	rdb, ctx := cluster.Client(t), t.Context()
	require.Equal(t, strings.Repeat("info server: neither RDB nor AOF is on\n", 3), servers(t, rdb))
	a, b := cluster.Nodes()[0].Client(t), cluster.Nodes()[1].Client(t)
	id := func(c *redis.Client) string { return c.Do(ctx, "cluster", "myid").Val().(string) }
	require.NoError(t, a.Do(ctx, "cluster", "setslot", 7, "migrating", id(b)).Err())
	require.NoError(t, b.Do(ctx, "cluster", "setslot", 7, "importing", id(a)).Err())
	require.Equal(t, 2, strings.Count(servers(t, rdb), "warning slot: slot 7 is on its way between two nodes\n"))
}

// Facts that no server of these tests shows.
func TestServerFacts(t *testing.T) {
	for info, want := range map[string]string{
		"redis_version:4.0.14":                       "version 4.0.14",
		"redis_version:7.2.4":                        "",
		"loading:1":                                  "the server loads its data",
		"cluster_state:fail":                         "cluster_state is fail",
		"rdb_last_bgsave_status:err":                 "the last background save failed",
		"rdb_last_bgsave_status:ok":                  "",
		"aof_enabled:1\r\naof_last_write_status:err": "the last write of the append-only file failed",
	} {
		list := factsOf(info).examine(Target{})
		if want == "" {
			require.Empty(t, list, info)
			continue
		}
		require.Len(t, list, 1, info)
		require.Equal(t, want, list[0].Found)
		require.Equal(t, Critical, list[0].Severity)
	}
}

func TestAll(t *testing.T) {
	w := newWard(t)
	base := w.name
	w.name = base + "sick"
	w.do(rate(0))
	w.do(value(0))
	w.name = base + "well"
	w.do(rate(0))
	w.name = base + "gone"
	w.do(value(3), grant(7, time.Second))
	w.name = base + "clients"
	w.do(rate(1))
	for i := range 12 {
		w.do(grantOf(fmt.Sprint(":", i), 1, 2*time.Hour))
		w.do(valueOf(fmt.Sprint(":", i), 9))
	}
	d := &Doctor{Survey: survey.New(w.rdb)}
	seen := 0
	r := redistest.Must(d.All(w.ctx, survey.Query{Match: base + "*"}, 100, func(*Report) { seen++ }))(t)
	require.Empty(t, r.Skipped)
	require.Equal(t, 4, r.Limiters)
	require.Equal(t, 4, seen)
	got := map[string]string{}
	for _, f := range r.Findings {
		got[strings.TrimPrefix(f.Limiter, base)] += f.Check
	}
	require.Equal(t, map[string]string{"sick": "stuck", "gone": "remains", "clients": "dead-clients"}, got)
	r = redistest.Must(d.All(w.ctx, survey.Query{Match: base + "*"}, 2, nil))(t)
	require.Equal(t, "looked at only the first 2 limiters", r.Skipped[0].Why)
}

// TestHotKey has a script that looks like one of a limiter's hold the server up.
func TestHotKey(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redistest.Start(t, "--appendonly", "yes").Client(t)
	const spin = `local n = 0 for i = 1, 10000000 do n = n + i end return 1` // the clock stands still in a script of Valkey
	run := func(keys ...string) { require.NoError(t, rdb.Eval(t.Context(), spin, keys).Err()) }
	run("other", "key")
	run("orders:value", "{orders:value}:permits")
	require.Empty(t, servers(t, rdb))
	run("orders", "{orders}:value", "{orders}:permits")
	run("orders", "{orders}:permits", "{orders}:value")
	none := "info hot-key: 2 calls in the slow log of the last hour that limiters do not explain"
	require.Contains(t, servers(t, rdb), none, "there is no such limiter, or none any more")
	require.NoError(t, rdb.HSet(t.Context(), "orders", "rate", 5001, "unit", "C").Err())
	require.Contains(t, servers(t, rdb), none, "it is a hash of somebody else")
	require.NoError(t, rdb.HSet(t.Context(), "orders", "interval", 1000, "type", 0, "keepAliveTime", 0).Err())
	other := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, DB: 3})
	defer other.Close()
	require.Contains(t, servers(t, other), none, "it is in another database")
	require.NoError(t, other.HSet(t.Context(), "orders", "rate", 6000, "interval", 1000, "type", 0).Err())
	require.Contains(t, servers(t, rdb), "info hot-key: 2 calls in the slow log of the last hour, in this database or in another, the slowest of ")
	require.NoError(t, other.Del(t.Context(), "orders").Err())
	r := redistest.Must((&Doctor{Survey: survey.New(rdb)}).Servers(t.Context()))(t)
	require.Len(t, r.Findings, 1)
	f := r.Findings[0]
	require.Equal(t, "hot-key", f.Check)
	require.Equal(t, "orders", f.Limiter)
	require.Contains(t, f.Found, "2 calls in the slow log of the last hour, the slowest of ")

	// A limiter of a few permits cannot have been the cause, nor can one whose call was slow once.
	require.NoError(t, rdb.HSet(t.Context(), "orders", "rate", 5, "interval", 1000, "type", 0).Err())
	run("once", "{once}:value", "{once}:permits")
	require.Contains(t, servers(t, rdb), "info hot-key: 3 calls in the slow log of the last hour that limiters do not explain, the slowest of ")
	require.NotContains(t, servers(t, rdb), "warning")
	require.NoError(t, rdb.HSet(t.Context(), "orders", "rate", 5001).Err())
	require.Contains(t, servers(t, rdb), "warning hot-key: 2 calls")

	// The counters of scripts.
	var report Report
	(&Doctor{Survey: survey.New(rdb)}).hot(t.Context(), survey.Node{Client: rdb}, factsOf("uptime_in_seconds:100\r\ncmdstat_evalsha:calls=3000000,usec=1\r\ncmdstat_eval:calls=5,usec=1"), &report)
	require.Equal(t, "30000 script calls a second since the start", report.Findings[len(report.Findings)-1].Found)
}

// What was slow long ago, or was not slow, or is not of a limiter, does not count.
func TestSlowLog(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	entry := func(ago, took time.Duration, key string) redis.SlowLog {
		return redis.SlowLog{Time: now.Add(-ago), Duration: took, Args: []string{"EVALSHA", "…", "3", key, "{" + key + "}:value", "{" + key + "}:permits"}}
	}
	got := slowOf([]redis.SlowLog{entry(0, 20*time.Millisecond, "b"), entry(time.Minute, 30*time.Millisecond, "a"), entry(time.Hour, 10*time.Millisecond, "a"),
		entry(time.Hour+time.Second, time.Second, "a"), entry(0, 9*time.Millisecond, "b"), {Time: now, Duration: time.Second, Args: []string{"KEYS", "*"}}}, now)
	require.Equal(t, []*slowCalls{{"a", 2, 30 * time.Millisecond}, {"b", 1, 20 * time.Millisecond}}, got)
	require.Empty(t, slowOf(nil, now))
}
