// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
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

// Run returns what the callers of each limiter were told, as a [grantlog.Told]. Callers end after their last call, which is
// never cancelled: a permit granted to a cancelled call would belong to nobody.
func (p *Load) Run() any {
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: p.Addr}))
	if err != nil {
		panic(err)
	}
	ledgers := map[string]*grantlog.Ledger{}
	var running sync.WaitGroup
	end := time.Now().Add(p.During)
	for _, name := range p.Limiters {
		limiter, ledger := client.RateLimiter(name), &grantlog.Ledger{}
		ledgers[name] = ledger
		for i := range max(1, p.Callers) * len(p.Modes) {
			running.Go(func() {
				for time.Now().Before(end) {
					n, begin := p.Mix[rand.N(len(p.Mix))], time.Now()
					ok, err := acquire(limiter, n, p.Modes[i%len(p.Modes)])
					ledger.Note(begin, n, ok, false, err)
					if !ok {
						time.Sleep(p.Pause)
					}
				}
			})
		}
	}
	running.Wait()
	told := map[string]grantlog.Told{}
	for name, ledger := range ledgers {
		told[name] = ledger.Told()
	}
	return told
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
