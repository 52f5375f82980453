package ratelimiter

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestRejectedWritesAreOneOutage lets real servers reject writes while reads go on, under requests of which most are
// rejected for want of permits, and which reclaim expired permits, as Redis allows while it is out of memory. It is
// one outage, whose policy decides until writes work again.
func TestRejectedWritesAreOneOutage(t *testing.T) {
	redistest.NeedReal(t)
	tests := map[string]func(*testing.T){}
	for _, says := range []string{"OOM", "NOREPLICAS", "READONLY", "MISCONF"} {
		tests[says] = func(t *testing.T) { writesRefused(t, newPatient(t), says, rejections[says]) }
	}
	abreast(t, tests)
}

func writesRefused(t *testing.T, p *patient, says string, begin func(p *patient) func()) {
	const (
		interval = 500 * time.Millisecond
		share    = 2 // of 4 permits, in each interval
		lasts    = 15 * time.Second
	)
	var began, ended atomic.Int64
	client := newClient(t, p.rdb, WithOutagePolicy(LocalQuota(overall(4, interval), 2)), WithHook(Hook{Event: func(e Event) {
		switch e.Kind {
		case OutageBegan:
			began.Add(1)
			if !isReply(e.Err, says) {
				t.Error("the outage began with", e.Err)
			}
		case OutageEnded:
			ended.Add(1)
		}
	}}))
	defer client.Close()
	l := client.RateLimiter(redistest.Key(t))
	require.NoError(t, l.SetRate(p.ctx, overall(4, interval)))
	cure := begin(p)
	start := time.Now()
	var granted, failed atomic.Int64
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for time.Since(start) < lasts {
				r, err := l.Allow(p.ctx, 1)
				switch {
				case err != nil:
					failed.Add(1)
				case r.Granted && r.Degraded:
					granted.Add(1)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	callers.Wait()
	outages := began.Load()
	require.Zero(t, ended.Load())
	cure()
	cured := time.Now()
	soon(t, "the outage ends", func() bool {
		_, err := l.Allow(p.ctx, 1)
		require.NoError(t, err)
		return ended.Load() > 0
	})
	t.Logf("%s: %d outages in %v, %d granted without Redis, %d errors; over %v after the cure", says, outages, lasts,
		granted.Load(), failed.Load(), time.Since(cured))
	require.EqualValues(t, 1, outages)
	require.EqualValues(t, 1, began.Load())
	require.Zero(t, failed.Load())
	most := int64(share * lasts / interval)
	require.LessOrEqual(t, granted.Load(), most)
	require.Greater(t, granted.Load(), most/4, "the share is used, again and again")
}
