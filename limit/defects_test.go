// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/goredisson/ratelimiter/limit/limittest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestDefects tests, for each defect that a published script has, that a check finds it in a double and passes on
// our limiter. TestManners finds a second key that is not declared.
func TestDefects(t *testing.T) {
	second := limit.Rate{Permits: 7, Interval: time.Second}
	window, log := limit.FixedWindow{Rate: second}, limit.SlidingLog{Rate: second}
	bucket := limit.TokenBucket{Rate: limit.Rate{Permits: 3, Interval: time.Second}, Burst: 8}
	step := limit.IntervalBucket{Rate: limit.Rate{Permits: 3, Interval: time.Second}, Burst: 8}
	queue := limit.LeakyQueue{Rate: limit.Rate{Permits: 3, Interval: time.Second}, Capacity: 8}
	long := limit.FixedWindow{Rate: limit.Rate{Permits: 7, Interval: 1500 * time.Millisecond}}
	buckets := func(b bucketDouble) func(*world) limit.Limiter {
		b.perSecond, b.capacity = 3, 8
		return func(w *world) limit.Limiter {
			b.clock = w.now
			return b.limiter()
		}
	}
	for _, d := range []struct {
		defect string
		check  string
		finds  string // in what the check says
		ours   limit.Algorithm
		double func(w *world) limit.Limiter
	}{
		{"fixed window counts rejected calls", "ManyPermits", "rejected changed", window, func(*world) limit.Limiter {
			return windowDouble(7, time.Second, true)
		}},
		{"fixed window knows whole seconds only", "AdmitsNoMoreThanTheBound", "the bound is", long, func(*world) limit.Limiter {
			return windowDouble(7, time.Second, false)
		}},
		{"fixed window misses its EXPIRE", "Deadlines", "has no TTL", window, func(w *world) limit.Limiter {
			return counterDouble(w.rdb, w.key(), true)
		}},
		{"fixed window spends twice when a reply is lost", "LostReply", "without the loss", window, func(w *world) limit.Limiter {
			return counterDouble(w.rdb, w.key(), false)
		}},
		{"log has one member for a millisecond", "SameInstant", "the bound is", log, func(*world) limit.Limiter {
			return logDouble(7, time.Second, 0, true, false)
		}},
		{"log has no TTL", "Deadlines", "has no TTL", log, func(w *world) limit.Limiter {
			return setDouble(w.rdb, w.key())
		}},
		{"log looks and adds in two steps", "Concurrency", "callers at one instant", log, func(*world) limit.Limiter {
			return &racyLog{permits: 7}
		}},
		{"log's range ends early", "AdmitsNoMoreThanTheBound", "the bound is", log, func(*world) limit.Limiter {
			return logDouble(7, time.Second, time.Millisecond, false, false)
		}},
		{"log's range ends late", "NoDrift", "that should be", log, func(*world) limit.Limiter {
			return logDouble(7, time.Second, -time.Millisecond, false, false)
		}},
		{"log counts rejected calls", "RejectedSpendsNothing", "", log, func(*world) limit.Limiter {
			return logDouble(7, time.Second, 0, false, true)
		}},
		{"interval bucket loses its time", "Idle", "idle for", step, func(*world) limit.Limiter { return stepDouble() }},
		{"bucket rounds the refill down", "EventualAdmission", "the rate owes", bucket, buckets(bucketDouble{floors: true})},
		{"bucket does not save rejected calls", "EventualAdmission", "the rate owes", bucket, buckets(bucketDouble{forgets: true})},
		{"bucket knows whole seconds only", "AdmitsNoMoreThanTheBound", "the bound is", bucket, buckets(bucketDouble{tick: time.Second})},
		{"bucket has no end", "Idle", "the bound is", bucket, buckets(bucketDouble{endless: true})},
		{"bucket takes back for forward", "ClockSteps", "put back", bucket, buckets(bucketDouble{absolute: true})},
		{"bucket waits for its clock", "ClockSteps", "put back", bucket, buckets(bucketDouble{stuck: true})},
		{"bucket rounds waits up", "WaitIsExact", "just before that", bucket, buckets(bucketDouble{roundsWait: time.Millisecond})},
		{"bucket's rate is rounded", "NoDrift", "that should be", bucket, func(*world) limit.Limiter {
			return bucketDouble{perSecond: 1000 / 333., capacity: 8}.limiter()
		}},
		{"peek spends", "PeekSpendsNothing", "peek", bucket, func(w *world) limit.Limiter {
			l := bucketDouble{perSecond: 3, capacity: 8}.limiter()
			l.(*double).peek = true
			return l
		}},
		{"cancel gives back what has come in", "Settle", "the bound is", bucket, func(*world) limit.Limiter {
			return bucketDouble{perSecond: 3, capacity: 8}.limiter()
		}},
		{"queue counts calls, not permits", "Reserve", "the bound is", queue, func(*world) limit.Limiter {
			return &queueDouble{each: time.Second / 3}
		}},
	} {
		t.Run(d.defect, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				w := &world{t: t, rdb: rdb}
				s := promised(d.ours)
				s.Calls = 100_000
				s.StepClock = func(d time.Duration) { w.step += d }
				s.Deadlines = func(ctx context.Context) (map[string]time.Duration, error) { return deadlines(ctx, rdb, w.keys) }
				s.LoseReply = loser(t, rdb)
				if strings.HasPrefix(d.defect, "log's") {
					s.Resolution = time.Millisecond
				}
				s.New = func() limit.Limiter { return d.double(w) }
				s.AllowGrant = allowGrant
				err := check(t, d.check)(t.Context(), s)
				require.ErrorContains(t, err, d.finds)
				t.Log(err)

				s.Calls, s.Resolution, s.AllowGrant = 1000, 0, nil
				s.New = func() limit.Limiter {
					l := redistest.Must(limit.NewShared(rdb, w.key(), d.ours, limit.WithClock(w.now)))(t)
					w.keys = l.Keys()
					return l
				}
				require.NoError(t, check(t, d.check)(t.Context(), s))
			})
		})
	}
}

// A world is the surroundings of a double.
type world struct {
	t    *testing.T
	rdb  *redis.Client
	step time.Duration
	keys []string
}

func (w *world) now() time.Time { return time.Now().Add(w.step) }

func (w *world) key() string {
	w.keys = append(w.keys, redistest.Key(w.t))
	return w.keys[len(w.keys)-1]
}

func check(t *testing.T, name string) func(context.Context, limittest.Key) error {
	for _, c := range limittest.Checks() {
		if c.Name == name {
			return c.Run
		}
	}
	t.Fatalf("there is no check %s", name)
	return nil
}

// A check that no double fails would prove nothing.
func TestEveryCheckHasADefect(t *testing.T) {
	src := redistest.Must(os.ReadFile("defects_test.go"))(t)
	for _, c := range limittest.Checks() {
		require.Contains(t, string(src), `"`+c.Name+`", "`, c.Name)
	}
}
