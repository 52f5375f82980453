// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/grantlog"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// requireTyped fails f if a caller got an error other than ErrUnavailable, or any error at all if none is true.
func requireTyped(f *fault, b *grantlog.Ledger, none bool) {
	f.Helper()
	told := b.Told()
	require.Empty(f, told.Errors)
	if none {
		require.Empty(f, told.Unavailable)
	}
}

// errs returns how often callers got ErrUnavailable.
func errs(b *grantlog.Ledger) int { return sum(b.Told().Unavailable) }

// rounding is what the window may seem shorter by than the interval: Redis counts whole milliseconds.
const rounding = 2 * time.Millisecond

// fullest returns the largest number of permits that were certainly granted within less than interval.
func fullest(grants grantlog.Grants, interval time.Duration) int64 {
	return grants.Most(interval - rounding)
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
	tx := rdb.TxPipeline() // a call of a caller that has left may be carried out between two commands
	set, left := tx.ZRangeWithScores(ctx, permits, 0, -1), tx.Get(ctx, value)
	redistest.Must(tx.Exec(ctx))(t)
	for _, z := range set.Val() {
		m := redistest.Must(wire.ParseMember([]byte(z.Member.(string))))(t)
		if z.Score == 0 {
			s.tripwires++
		} else {
			s.used += int64(m.Permits)
		}
	}
	s.value = redistest.Must(left.Int64())(t)
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
	require.LessOrEqual(f, took, f.allowed(begin, took, bound), "%s; the promise is %v", what, bound)
}

// allowed returns how long something may take for [fault.within].
func (f *fault) allowed(begin time.Time, took, bound time.Duration) (allowed time.Duration) {
	f.stalls.mu.Lock()
	defer f.stalls.mu.Unlock()
	allowed = bound + 500*time.Millisecond
	for i, at := range f.stalls.begin {
		if at.Add(f.stalls.lasts[i]).After(begin) && at.Before(begin.Add(took)) {
			allowed += f.stalls.lasts[i]
		}
	}
	return allowed
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
