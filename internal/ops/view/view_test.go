// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestWaitingCallers shows who waits at a limiter of 10 permits in 10 s: 25 callers in two processes, in one look of a list and in one
// at the limiter. What a new caller waits is what it then does wait.
func TestWaitingCallers(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			if !redistest.TTLsAreVirtual() {
				return // TestWaitingCallersOfAServer has one
			}
			name := redistest.Key(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client := func() *ratelimiter.RateLimiter {
				c := clienttest.New(t, rdb, map[wire.Format][]ratelimiter.Option{wire.FormatLc0I: {ratelimiter.WithRedisson316()}}[format]...)
				t.Cleanup(func() { _ = c.Close() })
				return c.RateLimiter(name)
			}
			limiters := []*ratelimiter.RateLimiter{client(), client()}
			require.NoError(t, limiters[0].SetRate(ctx, ratelimiter.Rate{Permits: 10, Interval: 10 * time.Second}))
			require.NoError(t, limiters[0].Acquire(ctx, 10))
			for i := range 25 {
				go func() { _ = limiters[i%2].Acquire(ctx, 1) }()
			}
			time.Sleep(9 * time.Second) // each has asked a second time
			s := survey.New(rdb)
			v := view.Of(redistest.Must(s.Read(ctx, name, ""))(t))
			callers := int64(25)
			if format == wire.FormatLc0I { // whose tripwires have no room for the number
				callers = 2
			} else {
				require.Regexp(t, `^Go [0-9a-f]{4}: (10|0) permits, 13 waiting; Go [0-9a-f]{4}: (10|0) permits, 12 waiting$`, v.Takers.String())
			}
			require.Equal(t, callers, v.Row.Waiting)
			require.Equal(t, 2, v.Processes)
			require.True(t, strings.HasPrefix(v.Headline().String(), fmt.Sprintf("%d callers wait; a new caller waits about ", callers)), v.Headline().String())
			again := redistest.Must(s.Again(ctx, []survey.Place{{Name: name, Node: rdb.Options().Addr}}))(t)
			require.Len(t, again, 1)
			row := view.RowOf(again[0])
			require.Equal(t, callers, row.Waiting)
			require.Equal(t, v.Queued, row.Queued)
			if format == wire.FormatBc0I {
				begin := time.Now()
				require.NoError(t, limiters[0].Acquire(ctx, 1))
				require.InDelta(t, row.Queued.Seconds(), time.Since(begin).Seconds(), 10)
				require.Greater(t, row.Queued, 20*time.Second, "25 stand before it")
			}
			cancel()
			time.Sleep(12 * time.Second)
			require.Zero(t, view.Of(redistest.Must(s.Read(t.Context(), name, ""))(t)).Row.Waiting, "they have gone")
		})
	}
}

// TestWaitingCallersOfAServer reads who waits in real time.
func TestWaitingCallersOfAServer(t *testing.T) {
	rdb, name := redistest.Client(t), redistest.Key(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := clienttest.New(t, rdb)
	defer func() { _ = c.Close() }()
	l := c.RateLimiter(name)
	require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 5, Interval: time.Second}))
	for range 60 {
		go func() { _ = l.Acquire(ctx, 1) }()
	}
	s := survey.New(rdb)
	require.Eventually(t, func() bool {
		v := view.Of(redistest.Must(s.Read(ctx, name, ""))(t))
		return v.Row.Waiting > 20 && v.Queued > 3*time.Second && strings.Contains(v.Headline().String(), "callers wait; a new caller waits about ")
	}, 30*time.Second, 20*time.Millisecond)
}

// TestHarm orders what an engineer on call finds.
func TestHarm(t *testing.T) {
	rate := func(permits int64, interval time.Duration) permit.Rate {
		return permit.Rate{Permits: permits, Interval: interval}
	}
	rows := []view.Row{
		{Name: "free", Rate: rate(10, time.Second)},
		{Name: "quota, used up", Rate: rate(10, 24*time.Hour), Used: 10, Wait: 23 * time.Hour, State: view.Limited | view.Quota},
		{Name: "limited", Rate: rate(10, time.Second), Used: 10, Wait: time.Second, State: view.Limited},
		{Name: "banned", Rate: rate(10, time.Second), Wait: time.Minute, State: view.Limited | view.Cooling},
		{Name: "200 at 1000", Rate: rate(1000, time.Second), Waiting: 200, State: view.Limited | view.Queue},
		{Name: "checkout: 200 at 10", Rate: rate(10, time.Second), Waiting: 200, State: view.Limited | view.Queue},
		{Name: "3 at a quota", Rate: rate(10, 24*time.Hour), Waiting: 3, State: view.Limited | view.Queue | view.Quota},
		{Name: "stuck", Rate: rate(10, time.Second), State: view.Limited | view.Stuck},
	}
	view.Sort(rows, view.Orders["harm"])
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"stuck", "checkout: 200 at 10", "200 at 1000", "3 at a quota", "banned", "limited", "quota, used up", "free"}, names)
}

// TestNamesNoShellCarries gives a command for a limiter whose name has bytes that no shell passes on.
func TestNamesNoShellCarries(t *testing.T) {
	to := doctor.Target{Addrs: []string{"h:1"}}
	require.Equal(t, doctor.Cmd("rrl inspect YQBi --base64 --redis redis://h:1/0 --user default"), to.Command("inspect", []string{"a\x00b"}))
	require.Equal(t, doctor.NoCommand, string(to.Command("inspect", []string{strings.Repeat("\x00", 1000)})))
	r := view.RowOf(&survey.Limiter{State: &survey.State{Name: "a\x00b"}})
	require.Equal(t, "YQBi", r.Summary().NameBase64)
}

// TestTakersOfALargeSet puts 1,500 grants into a set: of so many the oldest and the newest
// are read, and the text says so.
func TestTakersOfALargeSet(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		l := clienttest.InBubble(t, rdb).RateLimiter(name)
		require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 2000, Interval: time.Hour}))
		var calls sync.WaitGroup
		for range 300 {
			calls.Go(func() { require.NoError(t, l.Acquire(t.Context(), 1)) })
		}
		calls.Wait()
		now := rdb.Time(t.Context()).Val()
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 1200 {
				p.ZAdd(t.Context(), redisson.NewKeys(name, "").Permits[0], redis.Z{Score: float64(now.UnixMilli()), Member: redisson.Member(false, redisson.RandomID(), 1)})
			}
			return nil
		})
		require.NoError(t, err)
		st := redistest.Must(survey.New(rdb).Read(t.Context(), name, ""))(t)
		require.Regexp(t, fmt.Sprintf("^of the %d oldest and newest of %d grants: ", len(st.Members), st.Count), view.Of(st).Takers.String())
		require.Less(t, int64(len(st.Members)), st.Count)
	})
}

func TestPerSecondText(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.0123456: "0.0123", 7.125: "7.12", 333.333: "333", 999.4: "999", 999.6: "1000", 1333.3: "1333", 2e6: "2000000"} {
		require.Equal(t, want, view.PerSecondText(n))
	}
}
