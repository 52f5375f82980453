package ratelimiter

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// likeRedisson is an acquire with the effects of Redisson's, as docs/protocol.md has them: reclaim what has
// expired, all of it; take the permits at the caller's own clock, or return when to ask again. Its members
// are of 21 bytes, of which the test draws those that are random.
//
// KEYS: hash, value, set. ARGV: permits, now, 17 bytes.
var likeRedisson = redis.NewScript(`
local conf = redis.call('HMGET', KEYS[1], 'rate', 'interval')
local now, interval, n = tonumber(ARGV[2]), tonumber(conf[2]), tonumber(ARGV[1])
local left = tonumber(redis.call('GET', KEYS[2]) or conf[1])
local old = redis.call('ZRANGEBYSCORE', KEYS[3], 0, now - interval)
for _, m in ipairs(old) do
  local a, b, c, d = string.byte(m, -4, -1)
  left = left + a + b * 256 + c * 65536 + d * 16777216
  redis.call('ZREM', KEYS[3], m)
end
local wait = 0
if left < n then
  wait = 3 + interval - (now - redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2])
else
  redis.call('ZADD', KEYS[3], now, ARGV[3] .. string.char(n, 0, 0, 0))
  left = left - n
end
redis.call('SET', KEYS[2], left)
return wait`)

// A jvm is callers that wait as Redisson's threads do: they ask at the ticks of one timer, of 100 ms.
type jvm struct {
	w     *world
	phase time.Duration // of the timer
	rdb   *redis.Client
}

func (j *jvm) ask(permits int64) (wait time.Duration) {
	random := make([]byte, 17)
	_, _ = rand.Read(random)
	random[0] = 16
	n, err := likeRedisson.Run(j.w.ctx, j.rdb, j.w.l.keys.of(Overall), permits, time.Now().UnixMilli(), random).Int64()
	if err != nil {
		j.w.t.Error(err)
	}
	return ms(n)
}

func (j *jvm) acquire(ctx context.Context, permits int64) bool {
	for {
		wait := j.ask(permits)
		if wait == 0 {
			return true
		}
		const tick = 100 * time.Millisecond
		at := j.w.elapsed() + wait - j.phase
		at = (at+tick-1)/tick*tick + j.phase
		select {
		case <-time.After(at - j.w.elapsed()):
		case <-ctx.Done():
			return false
		}
	}
}

// A side is callers that acquire in a loop for as long as the test lasts.
type side struct {
	callers int
	permits int64
	think   time.Duration
	acquire func(ctx context.Context, permits int64) bool

	from, till time.Duration // when it takes part; till 0 for always

	mu  sync.Mutex
	got []modelGrant
}

func (s *side) run(w *world, wg *sync.WaitGroup, lasts time.Duration) {
	if s.till == 0 {
		s.till = lasts
	}
	for i := range s.callers {
		wg.Go(func() {
			w.at(s.from + time.Duration(i)*time.Microsecond)
			ctx, cancel := context.WithTimeout(w.ctx, s.till-s.from-time.Duration(i)*time.Microsecond)
			defer cancel()
			for ctx.Err() == nil {
				if !s.acquire(ctx, s.permits) {
					return
				}
				s.mu.Lock()
				s.got = append(s.got, modelGrant{w.elapsed(), s.permits})
				s.mu.Unlock()
				time.Sleep(s.think)
			}
		})
	}
}

// in is what the side was granted from one instant to another.
func (s *side) in(from, to time.Duration) (n int64) {
	for _, g := range s.got {
		if g.at >= from && g.at < to {
			n += g.permits
		}
	}
	return n
}

// goSide is callers of another process of this package, or of w's own.
func goSide(c *Client, w *world, callers int, permits int64) *side {
	l := c.RateLimiter(w.l.Name())
	return &side{callers: callers, permits: permits, acquire: func(ctx context.Context, n int64) bool {
		err := l.Acquire(ctx, n)
		if err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
		return err == nil
	}}
}

func javaSide(w *world, callers int, phase time.Duration) *side {
	j := &jvm{w: w, phase: phase, rdb: redistest.Peer(w.t, w.rdb)}
	return &side{callers: callers, permits: 1, acquire: j.acquire}
}

// spread takes the rate, so that its permits come back one by one.
func (w *world) spread(rate int64, interval time.Duration) {
	for range rate {
		w.granted(1)
		time.Sleep(interval / time.Duration(rate))
	}
}

func play(w *world, lasts time.Duration, sides ...*side) {
	w.epoch = time.Now()
	var wg sync.WaitGroup
	for _, s := range sides {
		s.run(w, &wg, lasts)
	}
	wg.Wait()
	synctest.Wait()
}

func TestJavaThatWaitsGetsItsShare(t *testing.T) {
	for _, c := range []struct {
		rate     int64
		interval time.Duration
		share    float64
		all      float64
	}{
		{10, time.Second, .35, .95},
		{1, time.Second, .35, .90},
		{2, time.Second, .35, .90},
		{100, time.Second, .35, .95},
		{10, 10 * time.Second, .35, .95},
		{10, 500 * time.Millisecond, .35, .90},
		{10, 200 * time.Millisecond, .25, .85},
		{10, 100 * time.Millisecond, .20, .80},
	} {
		for i, phase := range []time.Duration{0, 3 * time.Millisecond, 37 * time.Millisecond, 70 * time.Millisecond, 99 * time.Millisecond, 1, 37 * time.Millisecond, 90 * time.Millisecond} {
			spread := i > 4
			inWorld(t, overall(c.rate, c.interval), func(t *testing.T, w *world) {
				java, ours := javaSide(w, 8, phase), goSide(w.client, w, 8, 1)
				if spread {
					w.spread(c.rate, c.interval)
				}
				lasts := 30 * c.interval
				play(w, lasts, ours, java)
				from := 10 * c.interval
				j, g := java.in(from, lasts), ours.in(from, lasts)
				most := c.rate * int64((lasts-from)/c.interval)
				t.Logf("%v phase %v spread %v: Java %d, Go %d of %d: share %.3f, all %.3f", c, phase, spread, j, g, most, float64(j)/float64(j+g), float64(j+g)/float64(most))
				if float64(j) < c.share*float64(j+g) || float64(g) < c.share*float64(j+g) || float64(j+g) < c.all*float64(most) {
					t.Errorf("%d in %v BAD", c.rate, c.interval)
				}
			})
		}
	}
}

func TestProcessesShareFairly(t *testing.T) {
	for name, c := range map[string]struct {
		callers []int
		permits []int64
	}{
		"two":              {[]int{8, 8}, []int64{1, 1}},
		"four":             {[]int{8, 8, 8, 8}, []int64{1, 1, 1, 1}},
		"1 and 32":         {[]int{1, 32}, []int64{1, 1}},
		"five at a time":   {[]int{8, 2}, []int64{1, 5}},
		"five, one caller": {[]int{8, 1}, []int64{1, 5}},
	} {
		for _, spread := range []bool{false, true} {
			t.Run(fmt.Sprint(name, spread), func(t *testing.T) {
				inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
					var sides []*side
					for i := range c.callers {
						client := newWorld(t, redistest.Peer(t, w.rdb)).client
						defer client.Close()
						sides = append(sides, goSide(client, w, c.callers[i], c.permits[i]))
					}
					if spread {
						w.spread(10, time.Second)
					}
					const lasts = 60 * time.Second
					play(w, lasts, sides...)
					all := int64(0)
					for i, s := range sides {
						n := s.in(10*time.Second, lasts)
						all += n
						t.Logf("%s %v: process %d: %d", name, spread, i, n)
					}
					t.Logf("all %d of 500", all)
				})
			})
		}
	}
}

func TestReopenProbe(t *testing.T) {
	for _, reopen := range []time.Duration{3 * time.Second, 10 * time.Second} {
		for _, rate := range []int64{10, 100} {
			inWorld(t, overall(rate, time.Second), func(t *testing.T, w *world) {
				w.granted(rate)
				if err := w.l.CoolDown(w.ctx, time.Now().Add(2*time.Second), Reopen(reopen)); err != nil {
					t.Fatal(err)
				}
				ours, java := goSide(w.client, w, 8, 1), javaSide(w, 8, 37*time.Millisecond)
				play(w, 10*time.Second, ours, java)
				for at := time.Duration(0); at < 10*time.Second; at += 500 * time.Millisecond {
					t.Logf("rate %d reopen %v at %v: Go %d Java %d", rate, reopen, at, ours.in(at, at+500*time.Millisecond), java.in(at, at+500*time.Millisecond))
				}
			})
		}
	}
}
