package ratelimiter

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
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

// A jvm has callers that wait as Redisson's threads do: they ask at the ticks of one timer, every 100 ms.
type jvm struct {
	w     *world
	phase time.Duration // of the timer
	rdb   *redis.Client
}

func (j *jvm) ask(permits int64) (wait time.Duration) {
	random := make([]byte, 17)
	_, _ = rand.Read(random)
	random[0] = 16
	n, err := likeRedisson.Run(j.w.ctx, j.rdb, keysOf(j.w.l, Overall), permits, time.Now().UnixMilli(), random).Int64()
	if err != nil {
		j.w.t.Error(err)
	}
	return time.Duration(n) * time.Millisecond
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

// An underWay is a hook by which each script is under way for a random time. So it is not the scheduler that decides
// which of several processes is first whenever permits come back, and maybe the same way each time.
type underWay struct{ scriptHook }

func (underWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(mathrand.N(time.Millisecond))
		return next(ctx, cmd)
	}
}

// A side has callers that acquire in a loop for as long as the test lasts.
type side struct {
	callers int
	permits int64
	think   time.Duration
	acquire func(ctx context.Context, permits int64) bool

	from, till time.Duration // when it takes part; a till of 0 stands for always

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

// in returns what the side was granted from one instant to another.
func (s *side) in(from, to time.Duration) (n int64) {
	for _, g := range s.got {
		if g.at >= from && g.at < to {
			n += g.permits
		}
	}
	return n
}

// goSide returns a side with callers of another process of this package, or of w's own process.
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

// spread takes the whole rate, so that its permits come back one by one.
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

// shares runs the sides, ignores the beginning, and returns what each was granted after it and how many permits
// there were.
func shares(w *world, rate int64, interval time.Duration, intervals int, sides ...*side) (got []int64, all, most int64) {
	w.t.Helper()
	lasts, from := time.Duration(intervals)*interval, 10*interval
	play(w, lasts, sides...)
	for _, s := range sides {
		n := s.in(from, lasts)
		got = append(got, n)
		all += n
	}
	return got, all, rate * int64((lasts-from)/interval)
}

// At equal demand the smaller side gets at least 35 %, and 95 % of the rate is used.
func TestJavaThatWaitsGetsItsShare(t *testing.T) {
	redistest.Repeats(t)
	for i, r := range []Rate{
		overall(10, time.Second), overall(2, time.Second), overall(100, time.Second),
		overall(10, 10*time.Second), overall(10, 500*time.Millisecond),
	} {
		// The phase is not 0, because ticks at the very instants of the permits are ties. Only virtual time has
		// those, and the scheduler may decide them the same way every time.
		for _, phase := range []time.Duration{time.Millisecond, 37 * time.Millisecond, 99 * time.Millisecond} {
			if i > 0 && phase != 37*time.Millisecond && !redistest.Long() {
				continue
			}
			for _, spread := range []bool{false, true} {
				inWorld(t, r, func(t *testing.T, w *world) {
					if spread {
						w.spread(r.Permits, r.Interval)
					}
					intervals := 30
					if r.Interval > time.Second {
						intervals = 90 // permits that come back together go to either side by chance
					}
					got, all, most := shares(w, r.Permits, r.Interval, intervals,
						goSide(w.client, w, 8, 1), javaSide(w, 8, phase))
					t.Logf("%v, phase %v, spread %v: Go %d, Java %d of %d", r, phase, spread, got[0], got[1], most)
					require.GreaterOrEqual(t, float64(min(got[0], got[1])), .35*float64(all), "%v, phase %v, spread %v: Go and Java %v", r, phase, spread, got)
					require.GreaterOrEqual(t, float64(all), .95*float64(most))
				})
			}
		}
	}
}

// One permit an interval goes to either side in turn, and every other time it is late because of Java's timer.
func TestJavaThatWaitsGetsItsShareOfOne(t *testing.T) {
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		got, all, most := shares(w, 1, time.Second, 60, goSide(w.client, w, 8, 1), javaSide(w, 8, 37*time.Millisecond))
		require.GreaterOrEqual(t, float64(min(got[0], got[1])), .35*float64(all), "%v", got)
		require.GreaterOrEqual(t, float64(all), .94*float64(most))
	})
}

// Callers with a timeout leave as much room, even if most of them are refused.
func TestTimeoutsLeaveRoomToo(t *testing.T) {
	for _, callers := range []int{8, 40} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			w.rdb.AddHook(underWay{}) // Java's permits come back at its own ticks
			ours := goSide(w.client, w, callers, 1)
			ours.acquire = func(ctx context.Context, n int64) bool {
				for ctx.Err() == nil {
					ok, err := w.l.TryAcquire(ctx, n, 2*time.Second)
					if ok || err != nil {
						return ok
					}
				}
				return false
			}
			got, all, most := shares(w, 10, time.Second, 40, ours, javaSide(w, 8, 37*time.Millisecond))
			require.GreaterOrEqual(t, float64(min(got[0], got[1])), .35*float64(all), "%d callers: %v", callers, got)
			require.GreaterOrEqual(t, float64(all), .95*float64(most))
		})
	}
}

// Each of several processes gets at least half of its fair share, whatever it asks for.
func TestProcessesShareFairly(t *testing.T) {
	redistest.Repeats(t)
	for _, c := range []struct {
		name             string
		callers, permits []int64
	}{
		{"two", []int64{8, 8}, []int64{1, 1}},
		{"four", []int64{8, 8, 8, 8}, []int64{1, 1, 1, 1}},
		{"one caller and 32", []int64{1, 32}, []int64{1, 1}},
		{"half of the rate at a time", []int64{8, 2}, []int64{1, 5}},
		{"half of the rate at a time, one caller", []int64{8, 1}, []int64{1, 5}},
		{"half of the rate at a time beside three", []int64{8, 8, 8, 1}, []int64{1, 1, 1, 5}},
	} {
		for _, spread := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, spread %v", c.name, spread), func(t *testing.T) {
				inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
					if spread {
						w.spread(10, time.Second)
					}
					var sides []*side
					for i := range c.callers {
						peer := newWorld(t, redistest.Peer(t, w.rdb))
						if len(c.permits) > 2 && c.permits[3] > 1 { // who comes first decides how long it takes to save up
							peer.rdb.AddHook(underWay{})
						}
						client := peer.client
						defer client.Close()
						sides = append(sides, goSide(client, w, int(c.callers[i]), c.permits[i]))
					}
					got, all, most := shares(w, 10, time.Second, 60, sides...)
					t.Log(got, all, most)
					for _, n := range got {
						require.GreaterOrEqual(t, float64(n), .5*float64(all)/float64(len(got)), "%v", got)
					}
					if len(got) > 2 && c.permits[3] > 1 {
						most = most * 88 / 100 // saving up costs something: 7 % on average, and 10 % at times
					}
					require.GreaterOrEqual(t, float64(all), .97*float64(most))
				})
			})
		}
	}
}

// Beside two processes, which share one half, Java gets the other half.
func TestJavaBesideTwoProcesses(t *testing.T) {
	inWorld(t, overall(20, time.Second), func(t *testing.T, w *world) {
		other := newWorld(t, redistest.Peer(t, w.rdb)).client
		defer other.Close()
		got, all, most := shares(w, 20, time.Second, 40,
			goSide(w.client, w, 8, 1), goSide(other, w, 8, 1), javaSide(w, 8, 37*time.Millisecond))
		t.Log(got, all, most)
		require.GreaterOrEqual(t, float64(got[2]), .35*float64(all), "%v", got)
		require.GreaterOrEqual(t, float64(min(got[0], got[1])), .125*float64(all), "%v", got)
		require.GreaterOrEqual(t, float64(all), .95*float64(most))
	})
}

// If nobody else waits, a saturated process is served at the very instant, for as long as that lasts.
func TestNobodyElseCostsNothing(t *testing.T) {
	for _, spread := range []bool{false, true} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			if spread {
				w.spread(10, time.Second)
			}
			ours := goSide(w.client, w, 8, 1)
			sent := count(w.rdb)
			play(w, 200*time.Second, ours)
			for _, g := range ours.got {
				require.Zero(t, g.at%(100*time.Millisecond), "served at %v", g.at)
			}
			require.EqualValues(t, 2000, ours.in(0, 200*time.Second))
			require.LessOrEqual(t, float64(sent.sent.Load()), 1.3*2000, "calls")
		})
	}
}

// What Java does not use comes back to us: to the very instant soon after its callers have left, and nearly all
// of it beside few callers.
func TestUnusedSharesAreUsed(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		ours, java := goSide(w.client, w, 8, 1), javaSide(w, 8, 37*time.Millisecond)
		java.from, java.till = 20*time.Second, 40*time.Second
		play(w, 60*time.Second, ours, java)
		require.EqualValues(t, 200, ours.in(0, 20*time.Second), "alone")
		require.GreaterOrEqual(t, java.in(25*time.Second, 40*time.Second), int64(60), "together")
		require.GreaterOrEqual(t, ours.in(40*time.Second, 45*time.Second), int64(45), "Java has left")
		for i, g := range ours.got {
			if g.at > 46*time.Second {
				require.Equal(t, time.Second, g.at-ours.got[i-10].at, "alone again, nothing is late: %v", g.at)
			}
		}
	})
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		ours, java := goSide(w.client, w, 8, 1), javaSide(w, 1, 37*time.Millisecond)
		java.think = 2 * time.Second
		got, all, most := shares(w, 10, time.Second, 60, ours, java)
		t.Log(got, all, most)
		require.GreaterOrEqual(t, got[1], int64(50/3), "one in three seconds at least")
		require.GreaterOrEqual(t, float64(all), .93*float64(most), "what is left to its caller is often late")
	})
}

// While a cool-down gives the permits back one after another, neither side takes all of them.
func TestReopeningIsShared(t *testing.T) {
	for _, rate := range []int64{10, 100} {
		inWorld(t, overall(rate, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(2*time.Second), Reopen(6*time.Second)))
			ours, java := goSide(w.client, w, 8, 1), javaSide(w, 8, 37*time.Millisecond)
			play(w, 8*time.Second, ours, java)
			g, j := ours.in(0, 8*time.Second), java.in(0, 8*time.Second)
			t.Log(g, j)
			require.GreaterOrEqual(t, float64(min(g, j)), .35*float64(g+j), "Go %d, Java %d", g, j)
		})
	}
}

// To whoever finds it, a tripwire is a grant that has expired: no permit is lost or gained, and a caller of
// Redisson that is refused removes it.
func TestTripwireIsNobodysPermit(t *testing.T) {
	for _, format := range []MemberFormat{MemberBc0I, MemberLc0I} {
		inWorld(t, overall(3, 10*time.Second), func(t *testing.T, w *world) {
			w.granted(3)
			ctx, cancel := context.WithTimeout(w.ctx, 4500*time.Millisecond)
			defer cancel()
			java := &jvm{w: w, rdb: w.rdb}
			var wg sync.WaitGroup
			wg.Go(func() { _ = w.l.Acquire(ctx, 1) })
			w.at(1500 * time.Millisecond)
			members := w.rdb.ZRangeWithScores(w.ctx, w.permitsKey(), 0, 0).Val()
			require.Zero(t, members[0].Score)
			m, err := ParseMember([]byte(members[0].Member.(string)))
			require.NoError(t, err)
			require.EqualValues(t, 1, m.Permits)
			require.Equal(t, format, m.Format)
			require.EqualValues(t, -1, w.value())
			w.available(0)
			require.Equal(t, 8503*time.Millisecond, java.ask(1), "the wait is that of the oldest grant")
			require.Zero(t, w.value())
			used, _ := w.used()
			require.EqualValues(t, 3, used)
			w.at(2500 * time.Millisecond)
			require.EqualValues(t, -1, w.value(), "planted again")
			require.NoError(t, w.l.Release(w.ctx, 1))
			wg.Wait()
			w.refused(1, 10*time.Second-w.elapsed())
			used, _ = w.used()
			require.EqualValues(t, 3, used)
			require.Zero(t, w.value())
		}, WithMemberFormat(format))
	}
}

// What this process asks for beside its waiters may reclaim their tripwire and is not a sign of others, so the
// waiters are served at the very instant.
func TestOwnCallsAreNoSignOfOthers(t *testing.T) {
	for name, ask := range map[string]func(w *world) error{
		"Peek": func(w *world) error { _, err := w.l.Peek(w.ctx, 1); return err },
		"Try":  func(w *world) error { _, err := w.l.Try(w.ctx, 10); return err },
		"a list": func(w *world) error {
			_, err := w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 10}, Demand{w.client.RateLimiter("another"), 1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
				require.NoError(t, w.client.RateLimiter("another").SetRate(w.ctx, overall(10, time.Second)))
				ctx, cancel := context.WithCancel(w.ctx)
				done := make(chan error, 1)
				go func() {
					for ctx.Err() == nil {
						if err := ask(w); err != nil {
							done <- err
							return
						}
						time.Sleep(70 * time.Millisecond)
					}
					done <- nil
				}()
				time.Sleep(10 * time.Millisecond)
				begin := time.Now()
				for range 50 {
					require.NoError(t, w.l.Acquire(w.ctx, 1))
				}
				took := time.Since(begin)
				cancel()
				require.NoError(t, <-done)
				require.LessOrEqual(t, took, 5*time.Second)
				if name == "Peek" { // the other operations take permits, so each has a window of its own
					require.Equal(t, 4*time.Second, took)
				}
			})
		})
	}
}
