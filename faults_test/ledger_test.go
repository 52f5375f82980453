// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
)

// A grant is what one caller was told: it asked at begin, and had the permits at end. The grant was made in between.
// Both are read from the monotonic clock, which no fault changes.
type grant struct {
	begin, end time.Time
	permits    int64
}

// A ledger holds what the callers of one limiter were told.
type ledger struct {
	mu       sync.Mutex
	grants   []grant
	degraded int // grants by an outage policy, which are not among the grants
	away     map[string]int
	wrong    map[string]int // errors other than ErrUnavailable
}

// note records the outcome of a call that began at begin.
func (b *ledger) note(begin time.Time, permits int64, granted, degraded bool, err error) {
	end := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		kind := &b.wrong
		if errors.Is(err, ratelimiter.ErrUnavailable) {
			kind = &b.away
		}
		if *kind == nil {
			*kind = map[string]int{}
		}
		(*kind)[err.Error()]++
	case !granted:
	case degraded:
		b.degraded++
	default:
		b.grants = append(b.grants, grant{begin, end, permits})
	}
}

// all returns the grants until now, by the instant at which they were asked for.
func (b *ledger) all() []grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Clone(b.grants)
	slices.SortFunc(list, func(x, y grant) int { return x.begin.Compare(y.begin) })
	return list
}

func (b *ledger) total() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return permitsOf(b.grants)
}

func permitsOf(grants []grant) (n int64) {
	for _, g := range grants {
		n += g.permits
	}
	return n
}

// errs returns how often callers got ErrUnavailable.
func (b *ledger) errs() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, times := range b.away {
		n += times
	}
	return n
}

// requireTyped fails f if a caller got an error other than ErrUnavailable, or any error at all if none is true.
func (b *ledger) requireTyped(f *fault, none bool) {
	f.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(f, b.wrong)
	if none {
		require.Empty(f, b.away)
	}
}

// rounding is what the window may seem shorter by than the interval: Redis counts whole milliseconds.
const rounding = 2 * time.Millisecond

// fullest returns the largest number of permits that were certainly granted within less than interval.
func fullest(grants []grant, interval time.Duration) int64 {
	return permitsOf(redistest.Fullest(grants, interval-rounding, func(g grant) (begin, end time.Time, permits int64) {
		return g.begin, g.end, g.permits
	}))
}

// after returns the grants that were asked for after t.
func after(grants []grant, t time.Time) []grant {
	return slices.DeleteFunc(slices.Clone(grants), func(g grant) bool { return !g.begin.After(t) })
}

// firstAfter returns how long after t a grant reached its caller, however long ago it was asked for.
func (b *ledger) firstAfter(t time.Time) (time.Duration, bool) {
	var had []grant
	for _, g := range b.all() {
		if g.end.After(t) {
			had = append(had, g)
		}
	}
	if len(had) == 0 {
		return 0, false
	}
	first := slices.MinFunc(had, func(x, y grant) int { return x.end.Compare(y.end) })
	return first.end.Sub(t), true
}

// gap returns the longest time without a grant between t and until.
func (b *ledger) gap(t, until time.Time) (longest time.Duration) {
	list := b.all()
	slices.SortFunc(list, func(x, y grant) int { return x.end.Compare(y.end) })
	last := t
	for _, g := range list {
		if g.end.After(t) && g.end.Before(until) {
			longest, last = max(longest, g.end.Sub(last)), g.end
		}
	}
	return max(longest, until.Sub(last))
}

// A stored is what Redis holds of a limiter.
type stored struct{ value, used, tripwires int64 }

// sum is the rate in a sound limiter. A tripwire is a member with score 0, for which value is one less.
func (s stored) sum() int64 { return s.value + s.used + s.tripwires }

// keysOf returns the keys of an OVERALL limiter, as docs/design/protocol.md has them.
func keysOf(name string) (hash, value, permits string) {
	prefix := "{" + name + "}"
	if strings.Contains(name, "{") {
		prefix = name
	}
	return name, prefix + ":value", prefix + ":permits"
}

func inRedis(t testing.TB, rdb redis.UniversalClient, name string) (s stored) {
	t.Helper()
	ctx := context.Background()
	_, value, permits := keysOf(name)
	members := redistest.Must(rdb.ZRangeWithScores(ctx, permits, 0, -1).Result())(t)
	for _, z := range members {
		m := redistest.Must(wire.ParseMember([]byte(z.Member.(string))))(t)
		if z.Score == 0 {
			s.tripwires++
		} else {
			s.used += int64(m.Permits)
		}
	}
	s.value = redistest.Must(rdb.Get(ctx, value).Int64())(t)
	return s
}

// requireNoDrift fails f unless what lies in Redis is exactly what the callers of the limiter were told.
func requireNoDrift(f *fault, rdb redis.UniversalClient, name string, rate, told int64) {
	f.Helper()
	s := inRedis(f, rdb, name)
	require.Equal(f, told, s.used, "told to callers, and in the set of %q", name)
	require.Equal(f, rate, s.sum(), "value and the set of %q: %+v", name, s)
}

// stalls measures how long the machine stood still, since the bound on what a fault takes has to allow for that.
type stalls struct {
	mu    sync.Mutex
	begin []time.Time
	lasts []time.Duration
}

func watchStalls(t *testing.T) *stalls {
	s := &stalls{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			time.Sleep(5 * time.Millisecond)
			if lasts := time.Since(begin) - 5*time.Millisecond; lasts > 5*time.Millisecond {
				s.mu.Lock()
				s.begin, s.lasts = append(s.begin, begin), append(s.lasts, lasts)
				s.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return s
}

// within fails f if something took longer than bound and the machine's own stalls in that time, and half a second
// for stalls that only the servers met.
func (f *fault) within(what string, begin time.Time, took, bound time.Duration) {
	f.Helper()
	f.stalls.mu.Lock()
	defer f.stalls.mu.Unlock()
	allowed := bound + 500*time.Millisecond
	for i, at := range f.stalls.begin {
		if at.Add(f.stalls.lasts[i]).After(begin) && at.Before(begin.Add(took)) {
			allowed += f.stalls.lasts[i]
		}
	}
	require.LessOrEqual(f, took, allowed, "%s; the promise is %v", what, bound)
}

// counted returns "3 of ..., 2 of ..." for messages, the most frequent first.
func counted(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Compare(m[b], m[a]) })
	var out []string
	for _, k := range keys[:min(4, len(keys))] {
		out = append(out, fmt.Sprintf("%d × %s", m[k], k))
	}
	return strings.Join(out, "; ")
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
