// SPDX-License-Identifier: Apache-2.0

package compat_test

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

// A soakPlan is the load of one Go process. Each limiter has one goroutine for each mode.
type soakPlan struct {
	Addr     string
	Limiters []string
	Mix      []int64
	Modes    []string // try, wait:DURATION or block
	Pause    time.Duration
	During   time.Duration
}

// A soakTally counts what the callers were told on one limiter.
type soakTally struct {
	Granted, Permits, Rejected int64
	Faults, Errors             map[string]int64
}

// run ends each goroutine after its last call, which it never cancels: a permit granted to a cancelled call would
// belong to nobody.
func (p *soakPlan) run() any {
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: p.Addr}))
	if err != nil {
		panic(err)
	}
	tallies := map[string]*soakTally{}
	var mu sync.Mutex
	var running sync.WaitGroup
	end := time.Now().Add(p.During)
	for _, name := range p.Limiters {
		tally := &soakTally{Faults: map[string]int64{}, Errors: map[string]int64{}}
		tallies[name] = tally
		for _, mode := range p.Modes {
			running.Go(func() {
				limiter := client.RateLimiter(name)
				for time.Now().Before(end) {
					n := p.Mix[rand.N(len(p.Mix))]
					ok, err := soakAsk(limiter, n, mode)
					mu.Lock()
					switch {
					case err != nil && isFault(err):
						tally.Faults[err.Error()]++
					case err != nil:
						tally.Errors[err.Error()]++
					case ok:
						tally.Granted++
						tally.Permits += n
					default:
						tally.Rejected++
					}
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

func soakAsk(limiter *ratelimiter.RateLimiter, n int64, mode string) (bool, error) {
	ctx := context.Background()
	if mode == "block" {
		err := limiter.Acquire(ctx, n)
		return err == nil, err
	}
	timeout, _ := strings.CutPrefix(mode, "wait:")
	d, _ := time.ParseDuration(timeout)
	return limiter.TryAcquire(ctx, n, d)
}

// isFault reports whether err is one that a caller may get while Redis is down, and at no other time.
func isFault(err error) bool {
	return errors.Is(err, ratelimiter.ErrUnavailable)
}
