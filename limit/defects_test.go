// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/limittest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestDefects tests, for each defect that a published script has, that a check finds it and passes on our limiter.
// TestManners finds a second key that is not declared.
func TestDefects(t *testing.T) {
	per := func(permits int64, interval time.Duration) ratelimiter.Rate {
		return ratelimiter.Rate{Permits: permits, Interval: interval}
	}
	window, long := limit.FixedWindow{Rate: per(7, time.Second)}, limit.FixedWindow{Rate: per(7, 1500*time.Millisecond)}
	log := limit.SlidingLog{Rate: per(7, time.Second)}
	bucket := limit.TokenBucket{Rate: per(3, time.Second), Burst: 8}
	step := limit.IntervalBucket{Rate: per(3, time.Second), Burst: 8}
	queue := limit.LeakyQueue{Rate: per(3, time.Second), Capacity: 8}
	for _, d := range []struct {
		defect string
		check  string
		finds  string // in what the check says
		ours   limit.Algorithm
		bad    func(w *world, d *defect) // makes a limiter of ours have the defect
	}{
		{"fixed window counts rejected calls", "ManyPermits", "rejected changed", window, countsRejected},
		{"log counts rejected calls", "RejectedSpendsNothing", "", log, func(_ *world, d *defect) { // which are logged when their time comes
			from := time.Time{}
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				r, err := d.asks(ctx, n, spend)
				if !r.Granted && err == nil {
					from = time.Now()
				} else if time.Since(from) < time.Second {
					return ratelimiter.Result{Wait: time.Second - time.Since(from)}, err
				}
				return r, err
			}
		}},
		{"fixed window knows whole seconds only", "AdmitsNoMoreThanTheBound", "the bound is", long, is(window)},
		{"log's range ends early", "AdmitsNoMoreThanTheBound", "the bound is", log, is(limit.SlidingLog{Rate: per(7, 999*time.Millisecond)})},
		{"log's range ends late", "NoDrift", "that should be", log, is(limit.SlidingLog{Rate: per(7, 1001*time.Millisecond)})},
		{"bucket's rate is rounded", "NoDrift", "that should be", bucket, is(limit.TokenBucket{Rate: per(1000, 333*time.Second), Burst: 8})},
		{"bucket has no end", "Idle", "the bound is", bucket, is(limit.TokenBucket{Rate: per(3, time.Second), Burst: 1000})},
		{"fixed window misses its EXPIRE", "Deadlines", "has no TTL", window, func(w *world, d *defect) {
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				r, err := d.asks(ctx, n, spend)
				return r, errors.Join(err, w.rdb.Persist(ctx, w.keys[0]).Err())
			}
		}},
		{"fixed window spends twice when a reply is lost", "LostReply", "without the loss", window, func(w *world, d *defect) {
			d.limiter = w.shared(window, limit.WithoutReplay())
			d.ask = func(ctx context.Context, n int64, spend bool) (r ratelimiter.Result, err error) {
				for range 2 { // sent again without an id
					if r, err = d.asks(ctx, n, spend); err == nil {
						break
					}
				}
				return r, err
			}
		}},
		{"log has one member for an instant", "SameInstant", "the bound is", log, func(_ *world, d *defect) {
			var last time.Time
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				if time.Now().Equal(last) {
					return ratelimiter.Result{Granted: true}, nil
				}
				last = time.Now()
				return d.asks(ctx, n, spend)
			}
		}},
		{"log looks and adds in two steps", "Concurrency", "callers at one instant", log, func(_ *world, d *defect) {
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				r, err := d.asks(ctx, n, false)
				time.Sleep(time.Microsecond) // the way to Redis and back
				if r.Granted && spend {
					_, err = d.asks(ctx, n, true)
				}
				return r, err
			}
		}},
		{"interval bucket loses its time", "Idle", "idle for", step, func(_ *world, d *defect) { // when it was not used for five intervals
			var last time.Time
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				if !last.IsZero() && time.Since(last) > 5*time.Second {
					if _, err := d.asks(ctx, 8, true); err != nil {
						return ratelimiter.Result{}, err
					}
				}
				last = time.Now()
				return d.asks(ctx, n, spend)
			}
		}},
		{"bucket rounds the refill down", "EventualAdmission", "the rate owes", bucket, func(_ *world, d *defect) { // and moves the clock on
			var last time.Time
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				since := time.Since(last)
				last = time.Now()
				if 0 < since && since < time.Second/3 {
					return ratelimiter.Result{Wait: time.Second / 3}, nil
				}
				return d.asks(ctx, n, spend)
			}
		}},
		{"bucket takes back for forward", "ClockSteps", "put back", bucket, func(w *world, d *defect) {
			d.limiter = w.shared(bucket, limit.WithClock(func() time.Time { return time.Now().Add(w.step.Abs()) }))
		}},
		{"bucket waits for its clock", "ClockSteps", "put back", bucket, func(w *world, d *defect) {
			var newest time.Time
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				if now := w.now(); now.Before(newest) {
					return ratelimiter.Result{Wait: newest.Sub(now)}, nil
				} else {
					newest = now
				}
				return d.asks(ctx, n, spend)
			}
		}},
		{"bucket rounds waits up", "WaitIsExact", "just before that", bucket, func(_ *world, d *defect) {
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				r, err := d.asks(ctx, n, spend)
				if !r.Granted {
					r.Wait = r.Wait.Truncate(time.Millisecond) + time.Millisecond
				}
				return r, err
			}
		}},
		{"peek spends", "PeekSpendsNothing", "peek", bucket, func(_ *world, d *defect) {
			d.ask = func(ctx context.Context, n int64, _ bool) (ratelimiter.Result, error) { return d.asks(ctx, n, true) }
		}},
		{"cancel gives back what has come in", "Settle", "the bound is", bucket, func(_ *world, d *defect) {
			var credit int64
			d.back = func(n int64) { credit += n }
			d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
				if spend && credit >= n {
					credit -= n
					return ratelimiter.Result{Granted: true}, nil
				}
				r, err := d.asks(ctx, n, spend)
				r.Available += credit
				return r, err
			}
		}},
		{"queue counts calls, not permits", "Reserve", "the bound is", queue, func(_ *world, d *defect) { d.single = true }},
	} {
		t.Run(d.defect, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				w := &world{t: t, rdb: rdb}
				s := promised(d.ours)
				s.StepClock = func(d time.Duration) { w.step += d }
				s.Deadlines = func(ctx context.Context) (map[string]time.Duration, error) { return deadlines(ctx, rdb, w.keys) }
				s.LoseReply = loser(t, rdb)
				if strings.HasPrefix(d.defect, "log's") {
					s.Resolution = time.Millisecond
				}
				for _, bad := range []bool{true, false} {
					s.Calls, s.AllowGrant = 1000, nil
					s.New = func() limit.Limiter { return w.shared(d.ours, limit.WithClock(w.now)) }
					if bad {
						s.AllowGrant = allowGrant
						if d.check == "NoDrift" { // by a limiter of this process
							s.Calls = 100_000
						}
						s.New = func() limit.Limiter {
							bad := &defect{limiter: w.shared(d.ours, limit.WithClock(w.now))}
							bad.ask = bad.asks
							d.bad(w, bad)
							return bad
						}
					}
					err := check(t, d.check)(t.Context(), s)
					if !bad {
						require.NoError(t, err)
						return
					}
					require.ErrorContains(t, err, d.finds)
					t.Log(err)
					s.Resolution = 0
				}
			})
		})
	}
}

// is makes a limiter be one of another algorithm.
func is(a limit.Algorithm) func(*world, *defect) {
	return func(w *world, d *defect) { d.limiter = redistest.Must(limit.NewLocal(a))(w.t) }
}

func countsRejected(_ *world, d *defect) {
	d.ask = func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
		r, err := d.asks(ctx, n, spend)
		if err == nil && !r.Granted && spend && r.Available > 0 {
			_, err = d.asks(ctx, r.Available, true)
		}
		return r, err
	}
}

// A defect is a limiter of ours behind a function that spoils it.
type defect struct {
	limiter limittest.Reserver
	ask     func(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error)
	back    func(n int64) // what Settle gives back
	single  bool          // Reserve takes one permit
}

func (d *defect) asks(ctx context.Context, n int64, spend bool) (ratelimiter.Result, error) {
	if spend {
		return d.limiter.Allow(ctx, n)
	}
	return d.limiter.Peek(ctx, n)
}
func (d *defect) Allow(ctx context.Context, n int64) (ratelimiter.Result, error) {
	return d.ask(ctx, n, true)
}
func (d *defect) Peek(ctx context.Context, n int64) (ratelimiter.Result, error) {
	return d.ask(ctx, n, false)
}
func (d *defect) Reserve(ctx context.Context, n int64, atMost time.Duration) (ratelimiter.Result, error) {
	if d.single {
		n = min(n, 1)
	}
	return d.limiter.Reserve(ctx, n, atMost)
}

// A defectGrant gives back as many permits as it is told to, whatever has come in since.
type defectGrant struct {
	d    *defect
	n    int64
	once sync.Once
}

func allowGrant(ctx context.Context, l limit.Limiter, n int64) (limittest.Grant, ratelimiter.Result, error) {
	r, err := l.Allow(ctx, n)
	return &defectGrant{d: l.(*defect), n: n}, r, err
}

func (g *defectGrant) Settle(_ context.Context, actual int64) error {
	err := ratelimiter.ErrSettled
	g.once.Do(func() {
		g.d.back(g.n - actual)
		err = nil
	})
	return err
}

// A world is the surroundings of a limiter with a defect.
type world struct {
	t    *testing.T
	rdb  *redis.Client
	step time.Duration
	keys []string
}

func (w *world) now() time.Time { return time.Now().Add(w.step) }

// shared returns a limiter in Redis, and makes its keys those of the world.
func (w *world) shared(a limit.Algorithm, opts ...limit.Option) *limit.Shared {
	l := redistest.Must(limit.NewShared(w.rdb, redistest.Key(w.t), a, append(opts, limit.WithoutCachedRejections())...))(w.t)
	w.keys = l.Keys()
	return l
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

// A check that no defect fails would prove nothing.
func TestEveryCheckHasADefect(t *testing.T) {
	src := redistest.Must(os.ReadFile("defects_test.go"))(t)
	for _, c := range limittest.Checks() {
		require.Contains(t, string(src), `"`+c.Name+`", "`, c.Name)
	}
}
