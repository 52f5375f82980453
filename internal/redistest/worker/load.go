// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter"
)

// A Load is a plan of callers that acquire permits again and again, each after its last call has returned.
type Load struct {
	Addr     string // of Redis
	Limiters []string
	Mix      []int64       // permits of a call, drawn
	Modes    []string      // try, wait:DURATION or block
	Callers  int           // of each limiter and mode; 0 is one
	Pause    time.Duration // after a call that was not granted
	During   time.Duration
}

// A Tally counts what the callers of one limiter were told.
type Tally struct {
	Granted, Permits, Rejected int64
	Longest                    time.Duration    // of any call
	Faults, Errors             map[string]int64 // ErrUnavailable, which a caller may get while Redis is down, and others
}

// Run returns a Tally of each limiter. Callers end after their last call, which is never cancelled: a permit granted to a
// cancelled call would belong to nobody.
func (p *Load) Run() any {
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: p.Addr}))
	if err != nil {
		panic(err)
	}
	tallies := map[string]*Tally{}
	var mu sync.Mutex
	var running sync.WaitGroup
	end := time.Now().Add(p.During)
	for _, name := range p.Limiters {
		limiter, tally := client.RateLimiter(name), &Tally{Faults: map[string]int64{}, Errors: map[string]int64{}}
		tallies[name] = tally
		for i := range max(1, p.Callers) * len(p.Modes) {
			running.Go(func() {
				for time.Now().Before(end) {
					n, begin := p.Mix[rand.N(len(p.Mix))], time.Now()
					ok, err := acquire(limiter, n, p.Modes[i%len(p.Modes)])
					mu.Lock()
					tally.add(n, time.Since(begin), ok, err)
					mu.Unlock()
					if !ok {
						time.Sleep(p.Pause)
					}
				}
			})
		}
	}
	running.Wait()
	return tallies
}

func acquire(limiter *ratelimiter.RateLimiter, n int64, mode string) (bool, error) {
	if mode == "block" {
		err := limiter.Acquire(context.Background(), n)
		return err == nil, err
	}
	timeout, _ := strings.CutPrefix(mode, "wait:")
	d, _ := time.ParseDuration(timeout)
	return limiter.TryAcquire(context.Background(), n, d)
}

func (t *Tally) add(permits int64, took time.Duration, granted bool, err error) {
	t.Longest = max(t.Longest, took)
	switch {
	case errors.Is(err, ratelimiter.ErrUnavailable):
		t.Faults[err.Error()]++
	case err != nil:
		t.Errors[err.Error()]++
	case granted:
		t.Granted++
		t.Permits += permits
	default:
		t.Rejected++
	}
}
