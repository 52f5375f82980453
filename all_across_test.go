package ratelimiter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// turns is how often each caller was granted what it asks for again and again, and how long it waited at most.
type turns struct {
	mu      sync.Mutex
	wg      sync.WaitGroup
	granted []int
	longest []time.Duration
}

// again has one more caller ask until acquire fails. A wait that has not ended by then counts.
func (v *turns) again(acquire func() error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := len(v.granted)
	v.granted, v.longest = append(v.granted, 0), append(v.longest, 0)
	v.wg.Go(func() {
		for {
			began := time.Now()
			err := acquire()
			v.mu.Lock()
			v.longest[i] = max(v.longest[i], time.Since(began))
			if err == nil {
				v.granted[i]++
			}
			v.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
}

// TestListsOfSeveralProcesses has three processes, each with three callers, ask for seven or eight of eight limiters at a time. It
// checks that none of the callers starves, whichever limiters they share and whoever else waits for these.
func TestListsOfSeveralProcesses(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "other tests of lists have as many goroutines")
	for _, c := range []struct {
		permits int64
		singles int // callers of each limiter in each process
		lasts   time.Duration
		longest time.Duration
	}{
		{permits: 120, lasts: 15 * time.Second, longest: 6 * time.Second},
		{permits: 50, singles: 1, lasts: 6 * time.Second, longest: 5 * time.Second},
	} {
		t.Run(fmt.Sprintf("%d permits of 200, beside %d callers of each", c.permits, c.singles), func(t *testing.T) {
			inWorld(t, Rate{}, func(t *testing.T, w *world) {
				l := w.others(slices.Repeat([]Rate{overall(200, 200*time.Millisecond)}, 8)...)
				ctx, cancel := context.WithTimeout(w.ctx, c.lasts)
				defer cancel()
				var lists, singles turns
				for process := range 3 {
					client := w.otherProcess()
					defer client.Close()
					for list := range 3 {
						var demands []Demand
						for i, l := range l {
							if i != 3*process+list {
								demands = append(demands, Demand{client.RateLimiter(l.Name()), c.permits})
							}
						}
						lists.again(func() error { return errOf(client.AcquireAll(ctx, demands...)) })
					}
					for i := range c.singles * len(l) {
						limiter := client.RateLimiter(l[i%len(l)].Name())
						singles.again(func() error { return limiter.Acquire(ctx, 1) })
					}
				}
				lists.wg.Wait()
				singles.wg.Wait()
				t.Logf("lists: %v granted, the longest waits %v; %v granted to singles", lists.granted, lists.longest, singles.granted)
				require.LessOrEqual(t, slices.Max(lists.longest), c.longest)
			})
		})
	}
}

// TestPerClientLimitersAreEachClientsOwn has eight clients ask for most of the permits of PER_CLIENT limiters, two at a time or
// one, beside small requests. Since each client has permits of its own, it checks that none of them
// waits for the others.
func TestPerClientLimitersAreEachClientsOwn(t *testing.T) {
	redistest.Repeats(t)
	rate := Rate{Type: PerClient, Permits: 10, Interval: time.Second}
	for _, asks := range []struct {
		name    string
		acquire func(ctx context.Context, l []*RateLimiter) error
	}{
		{"lists", func(ctx context.Context, l []*RateLimiter) error {
			return errOf(l[0].client.AcquireAll(ctx, Demand{l[0], 8}, Demand{l[1], 8}))
		}},
		{"large requests", func(ctx context.Context, l []*RateLimiter) error { return l[0].Acquire(ctx, 8) }},
	} {
		t.Run(asks.name, func(t *testing.T) {
			inWorld(t, Rate{}, func(t *testing.T, w *world) {
				shared := w.others(rate, rate)
				ctx, cancel := context.WithTimeout(w.ctx, 30*rate.Interval)
				defer cancel()
				var large, small turns
				for range 8 {
					client := w.otherProcess()
					defer client.Close()
					l := []*RateLimiter{client.RateLimiter(shared[0].Name()), client.RateLimiter(shared[1].Name())}
					large.again(func() error { return asks.acquire(ctx, l) })
					for i := range 4 {
						small.again(func() error { return l[i%2].Acquire(ctx, 1) })
					}
				}
				large.wg.Wait()
				small.wg.Wait()
				t.Logf("%v granted, the longest waits %v", large.granted, large.longest)
				require.GreaterOrEqual(t, slices.Min(large.granted), 8, "in 30 intervals")
				require.LessOrEqual(t, slices.Max(large.longest), 8*rate.Interval)
			})
		})
	}
}
