// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// found returns what Find finds, by name, and its errors.
func found(ctx context.Context, s *Survey, q Query) (map[string]*Limiter, []error) {
	list, errs := map[string]*Limiter{}, []error(nil)
	for l, err := range s.Find(ctx, q) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if list[l.Name] != nil {
			errs = append(errs, fmt.Errorf("%q was found twice", l.Name))
		}
		list[l.Name] = l
	}
	return list, errs
}

func names(list map[string]*Limiter) []string {
	var names []string
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// put adds a grant to a set at an instant.
func put(t *testing.T, rdb redis.UniversalClient, key string, permits uint32, at time.Time) {
	t.Helper()
	require.NoError(t, rdb.ZAdd(t.Context(), key, redis.Z{Score: float64(at.UnixMilli()),
		Member: redisson.Member(false, redisson.RandomID(), permits)}).Err())
}

func set(t *testing.T, rdb redis.UniversalClient, name, typ string, rate, interval int) {
	t.Helper()
	require.NoError(t, rdb.HSet(t.Context(), name, "rate", rate, "interval", interval, "type", typ).Err())
}

// do sends a command.
func do(t *testing.T, rdb redis.UniversalClient, args ...any) {
	t.Helper()
	require.NoError(t, rdb.Do(t.Context(), args...).Err())
}

func TestFind(t *testing.T) {
	rdb := redistest.Client(t)
	ctx, base := t.Context(), redistest.Key(t)
	now := rdb.Time(ctx).Val()
	name := func(s string) string { return base + s }

	set(t, rdb, name("fresh"), "0", 5, 10_000)
	set(t, rdb, name("client"), "1", 5, 10_000)
	set(t, rdb, name("used"), "0", 5, 10_000)
	do(t, rdb, "set", "{"+name("used")+"}:value", "0")
	put(t, rdb, "{"+name("used")+"}:permits", 2, now.Add(-20*time.Second))
	put(t, rdb, "{"+name("used")+"}:permits", 3, now.Add(-2*time.Second))
	set(t, rdb, name("odd{x}"), "0", 1, 10_000)
	do(t, rdb, "set", name("odd{x}")+":value", "0")
	put(t, rdb, name("odd{x}")+":permits", 1, now.Add(-2*time.Second))
	set(t, rdb, name("broken"), "7", 1, 10_000)
	do(t, rdb, "set", "{"+name("broken")+"}:value", "0")
	put(t, rdb, "{"+name("broken")+"}:permits", 1, now)
	set(t, rdb, name("broken too"), "7", 1, 10_000)
	do(t, rdb, "hset", name("broken too"), "keepAliveTime", 0)
	set(t, rdb, name("device"), "temperature", 1, 10_000)
	set(t, rdb, "{"+name("used")+"}:told", "0", 1, 10_000)
	require.NoError(t, rdb.HSet(ctx, name("hash"), "rate", 1, "interval", 1).Err())
	do(t, rdb, "set", name("string"), "1")
	for _, of := range []struct{ name, client string }{{"{" + name("gone") + "}", ""}, {"{" + name("goner") + "}", ":a"}, {"{" + name("goner") + "}", ":b"}, {name("gone{y}"), ""}} {
		do(t, rdb, "set", of.name+":value"+of.client, "3")
		put(t, rdb, of.name+":permits"+of.client, 1, now)
	}
	put(t, rdb, "{"+name("alone")+"}:permits", 1, now)
	do(t, rdb, "set", "{"+name("alone too")+"}:value", 1)
	do(t, rdb, "set", name("x")+":values", "3")

	list, errs := found(ctx, New(rdb), Query{Match: "*" + base + "*", Remains: true})
	require.Empty(t, errs)
	want := map[string]Kind{name("fresh"): Live, name("client"): Live, name("used"): Live, name("odd{x}"): Live,
		name("broken"): Live, name("broken too"): Live, "{" + name("used") + "}:told": Told}
	got := map[string]Kind{}
	for n, l := range list {
		got[n] = l.Kind
	}
	// With a pattern only the remains of names without braces of their own are looked for.
	want[name("gone")], want[name("goner")] = Remains, Remains
	require.Equal(t, want, got)

	require.EqualValues(t, 5, list[name("fresh")].Available())
	require.Zero(t, list[name("fresh")].Wait())
	require.EqualValues(t, Unknown, list[name("client")].Available())
	require.ErrorIs(t, list[name("broken")].Problem, permit.ErrMalformed)
	used := list[name("used")]
	require.EqualValues(t, 2, used.Available())
	require.EqualValues(t, 3, used.Used())
	require.EqualValues(t, []int64{2, 1}, []int64{used.Count, used.Expired})
	require.Equal(t, permit.Rate{Permits: 5, Interval: 10 * time.Second}, used.Rate)
	require.EqualValues(t, -1, used.TTLs[0])
	require.EqualValues(t, 3, used.Newest().Permits)
	odd := list[name("odd{x}")]
	require.Zero(t, odd.Available())
	require.Greater(t, odd.Wait(), 5*time.Second)
	require.LessOrEqual(t, odd.Wait(), 8*time.Second)

	list, errs = found(ctx, New(rdb), Query{Match: base + "[uf]*"})
	require.Empty(t, errs)
	require.Equal(t, []string{name("fresh"), name("used")}, names(list))

	list, errs = found(ctx, New(rdb), Query{Remains: true})
	require.Empty(t, errs)
	require.Contains(t, list, name("gone{y}"))
	require.Equal(t, Remains, list[name("gone{y}")].Kind)
	require.NotContains(t, list, name("x"))

	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, errs = found(ctx, New(rdb), Query{})
	require.Equal(t, []error{context.Canceled}, errs)
}

// TestFindByClients has PER_CLIENT limiters whose hash does not show one, as it has a field of somebody else. They are found by what their clients
// hold, with all that a list shows of a limiter; others' keys of such names are not.
func TestFindByClients(t *testing.T) {
	rdb, ctx, base := redistest.Client(t), t.Context(), redistest.Key(t)
	for _, field := range []string{"rate", "interval", "keepAliveTime", ""} {
		for _, client := range []string{":a", ":285475da-9152-4c83-822a-67ee2f116a79"} {
			ours, others := base+field+client, base+field+client+"-others"
			for _, name := range []string{ours, others} {
				set(t, rdb, name, "1", 5, 10_000)
				do(t, rdb, "hset", name, "team", "a", cmp.Or(field, "type"), "x")
				do(t, rdb, "pexpire", name, 60_000)
				do(t, rdb, "set", "{"+name+"}:value"+client, 3)
			}
			put(t, rdb, "{"+ours+"}:permits"+client, 1, rdb.Time(ctx).Val())
			do(t, rdb, "zadd", "{"+others+"}:permits"+client, 1, "alice")
		}
	}
	list, errs := found(ctx, New(rdb), Query{Match: base + "*", Remains: true, Broken: true})
	require.Empty(t, errs)
	require.Len(t, list, 8)
	for name, l := range list {
		require.NotContains(t, name, "others")
		require.Equal(t, Live, l.Kind, name)
		require.Positive(t, l.TTLs[0], name)
	}
}

// Keys in braces belong to the name without them, unless only the name with them has a hash.
func TestSuffixOf(t *testing.T) {
	for key, want := range map[string]string{
		"{a}:value": "a ", "{a}:permits": "a ", "{a}:value:c": "a c", "{a}:value:c:d": "a c:d",
		"a{b}:value": "a{b} ", "a{b}c:permits:x": "a{b}c x", "{a}b:value": "{a}b ", "{a:value": "{a ",
		"{x:value:y}:permits:z": "x:value:y z", "{{a}}:value": "{{a}} ", "{a:b}:value": "a:b ",
		"a:value": "", "{a}:values": "", "{a}:told": "", ":value": "", "{}:value": "{} ", "value": "",
	} {
		name, client, ok := suffixOf(key)
		got := ""
		if ok {
			got = name + " " + client
		}
		require.Equal(t, want, got, key)
	}
}

// TestFieldsAreThoseOfTheScripts checks that each field that a script writes is known to be a limiter's: a hash with any other one is foreign.
func TestFieldsAreThoseOfTheScripts(t *testing.T) {
	written := map[string]bool{}
	for _, path := range redistest.Must(filepath.Glob("../../../scripts/*.lua"))(t) {
		for _, call := range regexp.MustCompile(`'HSET', KEYS\[1\]((?:, '[a-zA-Z]+', [^,]+)+)`).FindAllStringSubmatch(string(redistest.Must(os.ReadFile(path))(t)), -1) {
			for _, field := range regexp.MustCompile(`, '([a-zA-Z]+)',`).FindAllStringSubmatch(call[1], -1) {
				written[field[1]] = true
			}
		}
	}
	require.ElementsMatch(t, fields, slices.Collect(maps.Keys(written)))
}

// TestFindEndsEarly shows a search that has looked at as many keys as it may, and a loop that is left, which sends no more steps.
func TestFindEndsEarly(t *testing.T) {
	rdb := redistest.Client(t)
	base := redistest.Key(t)
	for i := range 3 {
		set(t, rdb, fmt.Sprint(base, i), "0", 1, 1000)
	}
	var looked int64
	_, errs := found(t.Context(), New(rdb), Query{Match: base + "*", Remains: true, MaxKeys: 1, Looked: &looked})
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], ErrBudget)
	require.Positive(t, looked)
	for l, err := range New(rdb).Find(t.Context(), Query{Match: base + "*", Remains: true}) {
		require.NoError(t, err)
		require.Equal(t, Live, l.Kind)
		break
	}
}

func TestFindOnEveryNode(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}, DisableIdentity: true})
	t.Cleanup(func() { require.NoError(t, ring.Close()) })
	for _, rdb := range []redis.UniversalClient{cluster.Client(t), ring} {
		var want []string
		for i := range 20 {
			name := fmt.Sprintf("limiter %02d", i)
			want = append(want, name)
			set(t, rdb, name, "0", 5, 600_000)
			do(t, rdb, "set", "{"+name+"}:value", "3")
			put(t, rdb, "{"+name+"}:permits", 2, rdb.Time(t.Context()).Val())
		}
		s := New(rdb)
		list, errs := found(t.Context(), s, Query{Remains: true})
		require.Empty(t, errs)
		require.Equal(t, want, names(list))
		nodes := map[string]bool{}
		for _, l := range list {
			require.EqualValues(t, 3, l.Available())
			nodes[l.Node] = true
			st := redistest.Must(s.Read(t.Context(), l.Name, ""))(t)
			require.Equal(t, l.Node, st.Node)
			require.EqualValues(t, 1, st.Count)
			require.True(t, st.OneInstant)
		}
		require.Len(t, nodes, len(redistest.Must(s.Nodes(t.Context()))(t)))
	}

	// A shard that is down is reported, and the limiters of the others are shown.
	s := New(ring)
	b.Kill()
	require.Eventually(t, func() bool { return ring.Len() == 1 }, time.Minute, 10*time.Millisecond)
	list, errs := found(t.Context(), s, Query{})
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], ErrShardsDown)
	require.NotEmpty(t, list)
	lost := 0
	for i := range 20 {
		name := fmt.Sprintf("limiter %02d", i)
		if list[name] == nil {
			lost++
			_, err := s.Read(t.Context(), name, "")
			require.Error(t, err, "it is not said not to exist")
		}
	}
	require.Positive(t, lost)
}

// A name whose keys are in several slots is read, though not at one instant.
func TestReadAcrossSlots(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redistest.StartCluster(t).Client(t)
	name := "a{b"
	set(t, rdb, name, "0", 5, 600_000)
	do(t, rdb, "set", "a{b:value", "3")
	put(t, rdb, "a{b:permits", 2, rdb.Time(t.Context()).Val())
	st := redistest.Must(New(rdb).Read(t.Context(), name, ""))(t)
	require.False(t, st.OneInstant)
	require.Equal(t, "3", st.Value)
	require.EqualValues(t, 1, st.Count)
}

func TestRead(t *testing.T) {
	rdb := redistest.Client(t)
	ctx, name, s := t.Context(), redistest.Key(t), New(rdb)
	st := redistest.Must(s.Read(ctx, name, ""))(t)
	require.ErrorIs(t, st.Problem, permit.ErrNotInitialized)
	require.Equal(t, [3]string{"none", "none", "none"}, st.Types)
	require.Equal(t, [3]time.Duration{-2, -2, -2}, st.TTLs)

	client := clienttest.New(t, rdb)
	defer client.Close()
	l := client.RateLimiter(name)
	require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 2000, Interval: time.Hour}))
	for range 1200 {
		require.NoError(t, l.Acquire(ctx, 1))
	}
	st = redistest.Must(s.Read(ctx, name, client.ID()))(t)
	require.NoError(t, st.Problem)
	require.EqualValues(t, 1200, st.Count)
	require.Len(t, st.Members, 1000)
	require.False(t, st.Whole)
	require.Equal(t, "800", st.Value)
	require.EqualValues(t, -1, st.TTLs[0])
	require.Positive(t, st.TTLs[2])
	_, _, ok := st.Sum()
	require.False(t, ok)
	require.True(t, redistest.Must(s.Complete(ctx, st))(t))
	all, expired, ok := st.Sum()
	require.True(t, ok)
	require.EqualValues(t, []int64{1200, 0}, []int64{all, expired})
	var ids []string
	for id, err := range s.Clients(ctx, name) {
		require.NoError(t, err)
		ids = append(ids, id)
	}
	require.Equal(t, []string{client.ID()}, ids)

	// What both ends of the set have is returned once.
	require.NoError(t, l.Release(ctx, 500))
	st = redistest.Must(s.Read(ctx, name, client.ID()))(t)
	require.True(t, st.Whole)
	require.Len(t, st.Members, 700)
	require.True(t, slices.IsSortedFunc(st.Members, func(a, b Member) int { return a.Time().Compare(b.Time()) }))
	all, _, _ = st.Sum()
	require.EqualValues(t, 700, all)
}

// A key that is not of the type that a limiter has is reported by its type and does not hide the others.
func TestReadOfOtherTypes(t *testing.T) {
	rdb := redistest.Client(t)
	ctx, name := t.Context(), redistest.Key(t)
	do(t, rdb, "set", name, "x")
	require.NoError(t, rdb.HSet(ctx, "{"+name+"}:value", "a", "b").Err())
	put(t, rdb, "{"+name+"}:permits", 7, time.Now())
	st := redistest.Must(New(rdb).Read(ctx, name, ""))(t)
	require.Equal(t, [3]string{"string", "hash", "zset"}, st.Types)
	require.False(t, st.HasValue)
	require.EqualValues(t, 1, st.Count)

	require.NoError(t, rdb.Del(ctx, name).Err())
	for i := range 100 {
		require.NoError(t, rdb.HSet(ctx, name, fmt.Sprint("junk", i), i).Err())
	}
	set(t, rdb, name, "0", 5, 1000)
	require.Len(t, redistest.Must(New(rdb).Read(ctx, name, ""))(t).Fields, 3)
}

func TestFindSaysWhichNodeIsAway(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	_, errs := found(t.Context(), New(rdb), Query{})
	require.Len(t, errs, 1)
	var node *NodeError
	require.True(t, errors.As(errs[0], &node))
	require.Equal(t, "127.0.0.1:1", node.Node)
}

// TestReplicasAreNotRead: a cluster's client that sends what only reads to a replica finds what the masters have, also where the
// keys of a limiter are in several slots, which the client of the whole cluster reads.
func TestReplicasAreNotRead(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	cluster.AddLaggingReplica(t)
	rdb, ctx := cluster.Client(t, func(o *redis.ClusterOptions) { o.ReadOnly = true }), t.Context()
	split := ""
	for i := 0; split == ""; i++ {
		name := fmt.Sprintf("a{%d", i)
		if rdb.ClusterKeySlot(ctx, name).Val() < 5461 && redisson.CheckClusterSafe(name, "") != nil { // the first master's
			split = name
		}
	}
	s := New(rdb)
	for _, name := range []string{"{06S}together", split} {
		set(t, rdb, name, "0", 5, 1000)
		st, err := s.Read(ctx, name, "")
		require.NoError(t, err)
		require.NoError(t, st.Problem, name)
		require.EqualValues(t, 5, st.Rate.Permits)
	}
	list, errs := found(ctx, s, Query{Match: "{06S}*"})
	require.Empty(t, errs)
	require.Equal(t, []string{"{06S}together"}, names(list))
}

// TestASlotOnItsWay finds limiters whose slot is being moved to another node, where some of their keys are already, and what one has
// left behind.
func TestASlotOnItsWay(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	cluster := redistest.StartCluster(t)
	rdb, ctx := cluster.Client(t), t.Context()
	a, b := cluster.Nodes()[0].Client(t), cluster.Nodes()[1].Client(t)
	const tag = "{06S}" // slot 0
	for _, name := range []string{"here", "there", "hash", "set", "left"} {
		set(t, rdb, tag+name, "0", 5, 3_600_000)
		require.NoError(t, rdb.Set(ctx, tag+name+":value", 3, 0).Err())
		put(t, rdb, tag+name+":permits", 2, rdb.Time(ctx).Val())
	}
	require.NoError(t, rdb.Del(ctx, tag+"left").Err())
	id := func(c *redis.Client) string { return c.Do(ctx, "cluster", "myid").Val().(string) }
	require.NoError(t, b.Do(ctx, "cluster", "setslot", 0, "importing", id(a)).Err())
	require.NoError(t, a.Do(ctx, "cluster", "setslot", 0, "migrating", id(b)).Err())
	to := b.Options().Addr
	for _, key := range []string{"there", "there:value", "there:permits", "hash", "set:permits", "left:value"} {
		_, port, _ := strings.Cut(to, ":")
		require.NoError(t, a.Do(ctx, "migrate", "127.0.0.1", port, tag+key, 0, 5000).Err(), key)
	}
	s := New(rdb)
	list, errs := found(ctx, s, Query{Remains: true})
	require.Empty(t, errs)
	require.Equal(t, []string{"{06S}hash", "{06S}here", "{06S}left", "{06S}set", "{06S}there"}, names(list))
	for _, name := range []string{"here", "there", "hash", "set"} {
		require.EqualValues(t, 3, list[tag+name].Available(), name)
		require.EqualValues(t, 2, list[tag+name].Used(), name)
		require.True(t, redistest.Must(s.Hash(ctx, tag+name))(t), name)
		require.Positive(t, redistest.Must(s.Memory(ctx, tag+name, tag+name+":permits"))(t), name)
	}
	require.Equal(t, Remains, list[tag+"left"].Kind)
}

// TestOneLineKeepsWhatStandsBetweenNames shortens long names in an error, and nothing that stands between two short ones.
func TestOneLineKeepsWhatStandsBetweenNames(t *testing.T) {
	text := `"lim": redis denies the call: NOPERM this user has no permissions to run the 'zrangebyscore' command [keys "lim" "{lim}:value"]`
	require.Equal(t, text, OneLine(errors.New(text)))
	long := strings.Repeat("a", 70)
	require.Equal(t, `"x\"y" and "`+long[:64]+`…" fail`, OneLine(errors.New(`"x\"y" and "`+long+`" fail`)))
}
