// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// opened returns a session of a contestant on an empty Redis.
func opened(t *testing.T, c contestant, j job) *session {
	local.empty(t)
	s := c.open(t, local, j)
	t.Cleanup(s.close)
	return s
}

// TestGrantsAreCounted checks of each contestant that one grant more or less in Redis than callers were told ends the run, and that
// its keys are those that it names; and of the JVMs, which are not closed, that they are silent when others have their turn.
func TestGrantsAreCounted(t *testing.T) {
	for _, c := range contestants() {
		t.Run(c.name, func(t *testing.T) {
			for _, limiters := range []int{1, 3} {
				for _, lie := range []int64{0, 1, -1} {
					s := opened(t, c, job{Limiters: limiters, Permits: 30, Interval: time.Hour})
					got := s.run(t, c, load{callers: 2, limiters: limiters}, 20, untimed{})
					require.EqualValues(t, 20, got.granted())
					require.EqualValues(t, len(s.keys), local.nodes[0].Exists(t.Context(), s.keys...).Val())
					got.Told[0] += lie
					err := s.held(t.Context(), got.Told)
					require.Equal(t, lie == 0, err == nil, "%d, %v", lie, err)
				}
			}
		})
	}
	local.resetUsage(t)
	time.Sleep(2 * time.Second)
	u := local.usage(t)
	require.Zero(t, u.calls+u.commands)
}

// A tested is a meter that takes no time.
type tested struct {
	testing.TB
	untimed
}

func (t tested) ReportMetric(v float64, unit string) {
	require.True(t, v >= 0, "%v %s", v, unit) // which NaN is not
}

// TestRows runs each row for each contestant that takes part in it, once, with a few requests.
func TestRows(t *testing.T) {
	for _, r := range rows() {
		n := 300
		if r.name == "flights" {
			n = 6000 // or no flight might be measured
		}
		t.Run(r.name, func(t *testing.T) {
			at := r.at(t)
			for _, c := range contestants() {
				if r.takes.MatchString(c.name) {
					t.Run(c.name, func(t *testing.T) {
						at.empty(t)
						r.run(tested{TB: t}, at, c, n)
					})
				}
			}
		})
	}
}

// A judged is a tested that keeps the message with which it was ended.
type judged struct {
	tested
	text string
}

func (j *judged) Errorf(format string, args ...any) { j.text += fmt.Sprintf(format, args...) }
func (j *judged) FailNow()                          { runtime.Goexit() }

// TestWorkNotDoneFails checks that a figure without the work behind it ends the run.
func TestWorkNotDoneFails(t *testing.T) {
	judge := func(f func(b meter)) string {
		b, done := &judged{tested: tested{TB: t}}, make(chan bool)
		go func() { defer close(done); f(b) }()
		<-done
		return b.text
	}
	lie := func(name string, answer bool) contestant {
		c := contestantNamed(name)
		honest := c.open
		c.open = func(t require.TestingT, at place, j job) *session {
			s := honest(t, at, j)
			ask := s.ask
			s.ask = func(ctx context.Context, i int) (bool, error) {
				_, err := ask(ctx, i)
				return answer, err
			}
			return s
		}
		return c
	}
	for _, x := range []struct {
		run    func(b meter, at place, c contestant, n int)
		answer bool
		want   string
	}{
		{load{callers: 2}.run, false, "granted and rejected"},
		{load{callers: 2, limiters: 9, flights: true}.run, false, "granted and rejected"},
		{load{callers: 2, reject: true}.run, true, "granted and rejected"},
		{func(b meter, at place, c contestant, _ int) { costs(b, at, c) }, false, "Should be zero"},
	} {
		for _, name := range []string{"ours", "redis_rate", "limit-gcra"} {
			local.empty(t)
			require.Contains(t, judge(func(b meter) { x.run(b, local, lie(name, x.answer), 50) }), x.want, name)
		}
	}
	for name, full := range map[string]func(testing.TB, place, contestant, int) *waited{"ours": fullWindow, "limit-gcra": fullKey, "limit-token-bucket": fullKey} {
		idle := func(t testing.TB, at place, c contestant, callers int) *waited {
			l := full(t, at, c, callers)
			l.wait = func() []time.Time { return make([]time.Time, callers) }
			return l
		}
		local.empty(t)
		require.Contains(t, judge(func(b meter) { waiters{20, idle}.run(b, local, contestantNamed(name)) }), "20 waiters returned, and the limiter holds 0", name)
	}
	bites := transport{1, func(string) httplimit.Match { return httplimit.Match{Hosts: []string{"api.example.com"}} }}
	require.Contains(t, judge(func(b meter) { bites.run(b, local, contestant{}, 1) }), "script calls of requests that no rule is for")
}

// TestHeld checks what is accepted of Redisson's keys.
func TestHeld(t *testing.T) {
	for _, x := range []struct {
		expires, lossy, ok bool
		value, told        int64
	}{
		{ok: true, value: 10, told: 20}, {value: 11, told: 20}, {value: 9, told: 20}, {value: 9, told: 21}, {lossy: true, ok: true, value: 9, told: 21},
		{lossy: true, value: 6, told: 24}, {expires: true, ok: true, value: 10, told: 25}, {expires: true, value: 10, told: 15},
	} {
		j := job{Limiters: 1, Permits: 30, Interval: time.Hour, Expires: x.expires}
		s := opened(t, contestantNamed("least"), j)
		s.run(t, contestant{}, load{callers: 1}, 20, untimed{})
		require.NoError(t, s.rdb.Set(t.Context(), valueKey(j.name(0)), x.value, 0).Err())
		err := heldIn(t.Context(), s.rdb, j, []int64{x.told}, x.lossy)
		require.Equal(t, x.ok, err == nil, "%+v: %v", x, err)
	}
}

// TestEveryAlgorithmIsMeasured checks that each algorithm of package limit is a contestant that is what it is called, and that each
// contestant is in a row.
func TestEveryAlgorithmIsMeasured(t *testing.T) {
	var want, got []string
	for _, file := range redistest.Must(filepath.Glob("../limit/*.go"))(t) {
		for _, m := range regexp.MustCompile(`(?m)^func \(a ([A-Z]\w+)\) model\(`).FindAllStringSubmatch(string(redistest.Must(os.ReadFile(file))(t)), -1) {
			want = append(want, "limit."+m[1])
		}
	}
	for _, k := range kinds() {
		got = append(got, fmt.Sprintf("%T", k.of(job{Permits: 5, Interval: time.Hour})))
		require.Equal(t, strings.ToLower(got[len(got)-1]), "limit."+strings.ReplaceAll(k.name, "-", ""))
	}
	require.ElementsMatch(t, want, got)
	for _, c := range contestants() {
		in := 0
		for _, r := range rows() {
			if r.takes.MatchString(c.name) {
				in++
			}
		}
		require.Positive(t, in, c.name)
	}
}

// TestScriptIn checks that the script is that which ran on the limiter, and that none is taken whose KEYS or ARGV have another order.
func TestScriptIn(t *testing.T) {
	sha := redis.NewScript("text").Hash()
	call := func(words ...string) []string {
		return append(words, "5", "n", "{n}:value", "{n}:value:id", "{n}:permits", "{n}:permits:id", "3", "1700000000000", "0123456789abcdef")
	}
	for _, sent := range [][][]string{{{"EVAL", "other", "1", "x"}, call("EVAL", "text")}, {call("EVALSHA", sha), {"SCRIPT", "LOAD", "text"}, call("EVALSHA", sha)}} {
		require.Equal(t, "text", redistest.Must(scriptIn(sent, "n", "3"))(t))
	}
	turned := call("EVAL", "text")
	turned[8], turned[9] = turned[9], turned[8]
	for _, sent := range [][][]string{{}, {call("EVAL", "text"), call("EVAL", "other")}, {turned}, {call("EVAL", "text")[:9]}} {
		_, err := scriptIn(sent, "n", "3")
		require.Error(t, err)
	}
}

// TestUsage checks that the work of two nodes is added up, and that the commands of scripts count as commands.
func TestUsage(t *testing.T) {
	at := placeOf(local.addrs[0], redistest.Start(t).Addr())
	at.resetUsage(t)
	for i, node := range at.nodes {
		for range i + 2 {
			require.NoError(t, node.Eval(t.Context(), "redis.call('SET', KEYS[1], 1) return redis.call('GET', KEYS[1])", []string{"k"}).Err())
		}
	}
	u := at.usage(t)
	require.Equal(t, []int64{5, 2, 10}, []int64{u.calls, u.idlest, u.commands})
	require.Positive(t, u.script)
	require.Positive(t, u.cpu)
}

// TestFlightTime checks that the time of a flight is what Redis worked for it, and not the time in which the machine did not let it.
func TestFlightTime(t *testing.T) {
	server, clock := redistest.Start(t), &flightClock{timer: untimed{}}
	rdb := place{addrs: []string{server.Addr()}, hook: clock}.client()
	defer rdb.Close()
	send := func() {
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Eval(t.Context(), "for i = 1, 1e7 do end return 1", nil)
			p.Eval(t.Context(), "return 1", nil)
			return nil
		})
		require.NoError(t, err)
	}
	send()
	clock.ResetTimer()
	done := make(chan bool)
	go func() { defer close(done); send() }()
	time.Sleep(20 * time.Millisecond)
	server.Pause()
	const pause = 2 * time.Second
	time.Sleep(pause)
	server.Resume()
	<-done
	send() // of four only the first is measured
	require.Len(t, clock.took, 1)
	require.Greater(t, clock.took[0], 10*time.Millisecond)
	require.Less(t, clock.took[0], pause)
}

// TestLags checks that lag is counted from the k-th free permit to the k-th return, and of what pairs the later is served earlier.
func TestLags(t *testing.T) {
	first := time.Unix(1000, 0)
	free := func(k int) time.Time { return first.Add(time.Duration(k/20) * 100 * time.Millisecond) }
	var fifo []time.Time
	for k := range 40 {
		fifo = append(fifo, free(k).Add(2*time.Millisecond))
	}
	for want, returned := range map[float64][]time.Time{0: fifo, 100 * 400.0 / 780: append(append([]time.Time{}, fifo[20:]...), fifo[:20]...)} {
		lags, overtaken, err := lagsOf(returned, 20, free)
		require.NoError(t, err)
		require.Equal(t, 2*time.Millisecond, quantile(lags, 99))
		require.InDelta(t, want, overtaken, 1e-9, "20 × 20 of 40 × 39 / 2 pairs")
	}
	fifo[0] = first.Add(-time.Second)
	_, _, err := lagsOf(fifo, 20, free)
	require.ErrorContains(t, err, "before its permit was free")
	require.Equal(t, []time.Duration{0, 2, 3}, []time.Duration{quantile(nil, 99), quantile([]time.Duration{3, 1, 2}, 50), quantile([]time.Duration{3, 1, 2}, 100)})
}
