// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func envInt(k string, d int) int {
	if s := os.Getenv(k); s != "" {
		n, _ := strconv.Atoi(s)
		return n
	}
	return d
}

type scn struct {
	name           string
	processes      int
	lists          int // a process
	permits        int64
	singles        int
	link           time.Duration
	rate           Rate
	limiters       int
	of             int // limiters of a list; 0 for all but one, as in the test
	lasts          time.Duration
	apart          bool
}

func (s scn) run(t *testing.T) {
	redistest.Repeats(t)
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		l := w.others(slices.Repeat([]Rate{s.rate}, s.limiters)...)
		ctx, cancel := context.WithTimeout(w.ctx, s.lasts)
		defer cancel()
		var lists, singles turns
		var calls atomic.Int64
		for process := range s.processes {
			opts := []Option{WithHook(Hook{Call: func(CallInfo) { calls.Add(1) }})}
			if s.apart {
				opts = append(opts, apart)
			}
			cl := w.another(opts...)
			client := cl.client
			if s.link > 0 {
				cl.rdb.AddHook(linkHook(s.link))
			}
			for lst := range s.lists {
				var demands []Demand
				for i, l := range l {
					if s.of == 0 && i == (3*process+lst)%9 || s.of > 0 && (i-lst-process+2*len(lists.granted)+100*s.limiters)%s.limiters >= s.of {
						continue
					}
					demands = append(demands, Demand{client.RateLimiter(l.Name()), s.permits})
				}
				lists.again(func() error { return client.AcquireAll(ctx, demands...) })
			}
			for i := range s.singles * len(l) {
				limiter := client.RateLimiter(l[i%len(l)].Name())
				singles.again(func() error { return limiter.Acquire(ctx, 1) })
			}
		}
		lists.wg.Wait()
		singles.wg.Wait()
		n, sn, used := 0, 0, int64(0)
		_ = used
		for _, g := range lists.granted {
			n += g
		}
		for _, g := range singles.granted {
			sn += g
		}
		sl := time.Duration(0)
		if len(singles.longest) > 0 {
			sl = slices.Max(singles.longest)
		}
		of := float64(s.limiters)
		if s.of > 0 {
			of = float64(s.of)
		} else {
			of = 7.11
		}
		cap := float64(s.rate.Permits) * float64(s.limiters) * float64(s.lasts) / float64(s.rate.Interval)
		zero := 0
		for _, g := range lists.granted {
			if g == 0 {
				zero++
			}
		}
		fmt.Printf("SCN %-28s lists %4d min %2d unserved %d longest %6.2fs | singles %6d longest %5.2fs | used %3.0f%% (singles %3.0f%%) | calls %d\n", s.name, n, slices.Min(lists.granted), zero, slices.Max(lists.longest).Seconds(), sn, sl.Seconds(),
			100*(float64(n)*of*float64(s.permits)+float64(sn))/cap, 100*float64(sn)/cap, calls.Load())
	})
}

type linkHook time.Duration

func (linkHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d linkHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(d) / 2)
		err := next(ctx, cmd)
		time.Sleep(time.Duration(d) / 2)
		return err
	}
}
func (d linkHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(d) / 2)
		err := next(ctx, cmds)
		time.Sleep(time.Duration(d) / 2)
		return err
	}
}

func TestScn(t *testing.T) {
	r := overall(200, 200*time.Millisecond)
	s1 := overall(200, time.Second)
	all := []scn{
		{name: "first", processes: 3, lists: 3, permits: 50, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second},
		{name: "first apart", processes: 3, lists: 3, permits: 50, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second, apart: true},
		{name: "link2ms", processes: 3, lists: 3, permits: 50, singles: 1, rate: r, limiters: 8, lasts: 18 * time.Second, link: 2 * time.Millisecond},
		{name: "link2ms 25s", processes: 3, lists: 3, permits: 50, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second, link: 2 * time.Millisecond},
		{name: "20 lists", processes: 3, lists: 20, permits: 50, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second},
		{name: "1s", processes: 3, lists: 3, permits: 50, singles: 1, rate: s1, limiters: 8, lasts: 25 * time.Second},
		{name: "1s 50s", processes: 3, lists: 3, permits: 50, singles: 1, rate: s1, limiters: 8, lasts: 50 * time.Second},
		{name: "permits 5", processes: 3, lists: 3, permits: 5, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second},
		{name: "permits 1", processes: 3, lists: 3, permits: 1, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second},
		{name: "3 singles", processes: 3, lists: 3, permits: 50, singles: 3, rate: r, limiters: 8, lasts: 25 * time.Second},
		{name: "large", processes: 3, lists: 3, permits: 120, singles: 0, rate: r, limiters: 8, lasts: 15 * time.Second},
		{name: "large+singles", processes: 3, lists: 3, permits: 120, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second},
		{name: "lists of 2", processes: 3, lists: 3, permits: 50, singles: 1, rate: r, limiters: 8, of: 2, lasts: 25 * time.Second},
		{name: "lists of 3", processes: 3, lists: 3, permits: 50, singles: 1, rate: r, limiters: 8, of: 3, lasts: 25 * time.Second},
		{name: "one list", processes: 1, lists: 1, permits: 50, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second},
		{name: "one process", processes: 1, lists: 9, permits: 50, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second},
		{name: "one list 3 procs", processes: 3, lists: 1, permits: 50, singles: 1, rate: r, limiters: 8, lasts: 25 * time.Second},
	}
	for _, p := range []int64{20, 80, 100, 120} {
		for _, n := range []int{1, 2, 4} {
			all = append(all, scn{name: fmt.Sprintf("p%d s%d", p, n), processes: 3, lists: 3, permits: p, singles: n, rate: r, limiters: 8, lasts: 25 * time.Second})
			all = append(all, scn{name: fmt.Sprintf("p%d s%d l", p, n), processes: 3, lists: 3, permits: p, singles: n, rate: r, limiters: 8, lasts: 25 * time.Second, link: 300*time.Microsecond})
		}
	}
	only := os.Getenv("SCN")
	for range envInt("N", 1) {
		for _, s := range all {
			if only == "" || slices.Contains(splitComma(only), s.name) {
				t.Run(s.name, s.run)
			}
		}
	}
}

func splitComma(s string) (l []string) {
	cur := ""
	for _, r := range s + "," {
		if r == ',' {
			l = append(l, cur)
			cur = ""
			continue
		}
		cur += string(r)
	}
	return l
}
