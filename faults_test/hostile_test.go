// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// hostile runs every operation on every state, several hundred pairs at a time, through a few Clients.
func hostile(f *fault) {
	const abreast, patience = 48, 500 * time.Millisecond
	s, ctx := redistest.Start(f), context.Background()
	a := newFleet(f, at(s.Addr(), func(o *redis.Options) { o.PoolSize = 200 }))
	rdb := s.Client(f)
	a.set(beside, rate(ample, time.Second))
	var (
		mu      sync.Mutex
		errs    = map[string]int{}
		wrong   []string
		most    float64 // of a window, of the rate
		longest time.Duration
		running sync.WaitGroup
		room    = make(chan struct{}, abreast)
		pairs   int
	)
	begin, list := time.Now(), states()
	for i, st := range list {
		for j, op := range operations {
			pairs++
			room <- struct{}{}
			running.Go(func() {
				defer func() { <-room }()
				name := fmt.Sprintf("hostile.%d.%d", i, j)
				p := &pair{c: a.clients[(i+j)%fleetSize], rdb: rdb, name: name, state: st, op: op}
				took, err := p.operate(ctx, patience)
				fullest, bad := p.afterwards(ctx)
				mu.Lock()
				defer mu.Unlock()
				longest, most = max(longest, took), max(most, fullest)
				if err != nil {
					if k := kind(err); strings.Contains(err.Error(), "WRONGTYPE") {
						errs["WRONGTYPE"]++
					} else {
						errs[k]++
					}
					if strange(err) && !(op.hurries() && (errors.Is(err, ratelimiter.ErrUnavailable) || errors.Is(err, ratelimiter.ErrOverloaded))) {
						bad = append(bad, err.Error())
					}
				}
				for _, b := range bad {
					wrong = append(wrong, fmt.Sprintf("%s, then %s: %s", st.name, op.name, b))
				}
			})
		}
	}
	running.Wait()
	f.measured("%d states × %d operations: %d sound answers, %s; longest call %v, of which up to %v its own context; fullest window an interval later %.2f of the rate; %d outages; %d findings",
		len(list), len(operations), pairs-sum(errs), counted(errs), round(longest), patience, most, a.began.Load(), len(wrong))
	for _, w := range wrong[:min(30, len(wrong))] {
		f.Error(w)
	}
	require.Empty(f, wrong[min(30, len(wrong)):])
	require.Zero(f, a.began.Load(), "outages")
	f.within("a call", begin, longest, patience+2*time.Second)
}

// strange reports whether err is none that a state justifies. A reply of Redis is justified by a key of another type
// only: any other one would be that of a script that has failed half way.
func strange(err error) bool {
	var reply redis.Error
	return !named(err) || errors.As(err, &reply) && !strings.Contains(err.Error(), "WRONGTYPE") && kind(err) == "an error of Redis"
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// A pair is an operation on a state.
type pair struct {
	c     *ratelimiter.Client
	rdb   *redis.Client
	name  string
	state state
	op    operation
	late  bool // the operation may yet be executed, since its caller has left it
}

// operate makes the state and calls the operation.
func (p *pair) operate(ctx context.Context, patience time.Duration) (took time.Duration, err error) {
	hash, value, set := keysOf(p.name)
	_, err = p.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.HSet(ctx, hash, "rate", hostilePermits, "interval", hostileInterval.Milliseconds(), "keepAliveTime", 0, "type", 0)
		tx.Set(ctx, value, hostilePermits-4, 0)
		tx.ZAdd(ctx, set, redis.Z{Score: float64(time.Now().UnixMilli()), Member: member('g', 4)})
		p.state.make(ctx, tx, []string{hash, value, set})
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("the state cannot be made: %w", errors.New(err.Error()))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	_, err = safely(func() (int64, error) { return p.op.call(ctx, p.c, p.name) })
	p.late = err != nil && ctx.Err() != nil && !p.op.grants
	return time.Since(begin), err
}

// afterwards uses the limiter, and returns the fullest window from an interval later on as a part of the rate. Then it
// deletes the limiter, sets it anew and finds it sound.
func (p *pair) afterwards(ctx context.Context) (most float64, bad []string) {
	l := p.c.RateLimiter(p.name)
	burst := func(b *grantlog.Ledger, permits int64) {
		for range 2 * permits {
			begin := time.Now()
			r, err := l.Allow(ctx, 1)
			b.Note(begin, 1, r.Granted, r.Degraded, err)
			if err != nil || !r.Granted {
				if err != nil && strange(err) {
					bad = append(bad, "afterwards "+err.Error())
				}
				return
			}
		}
	}
	if r, err := l.Rate(ctx); err == nil && r.Permits <= 100 && r.Interval <= time.Second {
		burst(&grantlog.Ledger{}, r.Permits)
		time.Sleep(r.Interval + 20*time.Millisecond)
		b := &grantlog.Ledger{}
		for begin := time.Now(); time.Since(begin) < 2*r.Interval; time.Sleep(r.Interval / 4) {
			burst(b, r.Permits)
		}
		most = float64(fullest(b.Told().Grants, r.Interval)) / float64(r.Permits)
		if most > 1 {
			bad = append(bad, fmt.Sprintf("%.2f of the rate %v in a window", most, r))
		}
	}
	if _, err := l.Admin().Delete(ctx); err != nil {
		return most, append(bad, "Delete: "+err.Error())
	}
	if ok, err := l.TrySetRate(ctx, rate(hostilePermits, time.Hour)); err != nil || !ok {
		return most, append(bad, fmt.Sprintf("TrySetRate: %v, %v", ok, err))
	}
	b := &grantlog.Ledger{}
	burst(b, hostilePermits)
	if n := b.Told().Permits(); n != hostilePermits && !p.late {
		state, err := l.Admin().Inspect(ctx)
		bad = append(bad, fmt.Sprintf("after Delete and TrySetRate %d granted of %d: %s %s, and Redis has %+v, %v", n, hostilePermits, counted(b.Told().Errors), counted(b.Told().Unavailable), state, err))
	}
	_, _ = l.Admin().Delete(ctx)
	return most, bad
}
