// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary behave as the program, whose workers are processes.
const asProgram = "WORKER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	logging.Disable()
	redistest.Main(m)
}

// soon is when a job is abandoned in tests that wait for that.
const soon = 100 * time.Millisecond

// newQueue returns a new queue in real time, with the given number of jobs in it. No job is ever abandoned: a test that
// wants that says when, so that a stall of the machine is not taken for it.
func newQueue(t *testing.T, rdb redis.UniversalClient, jobs int) *queue {
	q := &queue{rdb: rdb, stream: redistest.Key(t) + ":jobs", group: "workers", abandoned: time.Hour, block: time.Millisecond}
	require.NoError(t, q.create(t.Context()))
	require.NoError(t, q.create(t.Context()), "a second time")
	for i := range jobs {
		require.NoError(t, q.add(t.Context(), fmt.Sprint("job-", i+1)))
	}
	return q
}

func take(t *testing.T, c *consumer) *job {
	t.Helper()
	return redistest.Must(c.take(t.Context()))(t)
}

func left(t *testing.T, q *queue, want int64) {
	t.Helper()
	require.Equal(t, want, redistest.Must(q.left(t.Context()))(t), "jobs left")
}

// TestQueue checks that each job is taken once, and again by another worker when it was abandoned, but no earlier.
func TestQueue(t *testing.T) {
	q := newQueue(t, redistest.Client(t), 2)
	a, b := &consumer{queue: q, name: "a"}, &consumer{queue: q, name: "b"}
	first := take(t, a)
	require.Equal(t, &job{ID: first.ID, Payload: "job-1"}, first)
	before := time.Now()
	second := take(t, b)
	require.Equal(t, "job-2", second.Payload)
	left(t, q, 2)
	require.NoError(t, q.done(t.Context(), first))
	left(t, q, 1)
	q.abandoned = soon
	var again *job
	for again == nil {
		again = take(t, a)
	}
	require.GreaterOrEqual(t, time.Since(before), q.abandoned-time.Millisecond) // Redis counts whole milliseconds
	require.Equal(t, &job{ID: second.ID, Payload: "job-2", Again: true}, again)
	require.NoError(t, q.done(t.Context(), again))
	left(t, q, 0)
	require.Nil(t, take(t, a))
	require.Zero(t, redistest.Must(q.rdb.XPending(t.Context(), q.stream, q.group).Result())(t).Count)
}

// TestAbandonedJobBehindOthers checks that an abandoned job is found behind more than ten others that are in
// progress: XAUTOCLAIM looks at ten jobs in a call that wants one.
func TestAbandonedJobBehindOthers(t *testing.T) {
	q := newQueue(t, redistest.Client(t), 25)
	a, b := &consumer{queue: q, name: "a"}, &consumer{queue: q, name: "b"}
	var last string
	for range 25 {
		last = take(t, a).ID
	}
	twoHours := (2 * time.Hour).Milliseconds()
	require.NoError(t, q.rdb.Do(t.Context(), "XCLAIM", q.stream, q.group, "a", 0, last, "IDLE", twoHours, "JUSTID").Err())
	var got *job
	for n := 0; got == nil && n < 3; n++ {
		got = take(t, b)
	}
	require.NotNil(t, got)
	require.Equal(t, "job-25", got.Payload)
}

// newWorker returns a worker on a queue, with a limiter of that many permits per second, evenly spaced.
func newWorker(t *testing.T, q *queue, permits int64, opts ...ratelimiter.Option) *worker {
	client := clienttest.New(t, q.rdb, opts...)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	limiter := client.RateLimiter(redistest.Key(t))
	rate := (&settings{permits: permits, interval: time.Second}).rate()
	require.NoError(t, limiter.SetRate(t.Context(), rate))
	return &worker{jobs: &consumer{queue: q, name: "a"}, limiter: limiter, report: func(string, *job) {}}
}

// TestJobsBeginAtTheLimitersPace checks the exact times: of 12 jobs at 5 a second, one begins every 200 ms.
func TestJobsBeginAtTheLimitersPace(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var opts []ratelimiter.Option
		if !redistest.TTLsAreVirtual() { // a real server's TIME is not the bubble's
			opts = append(opts, ratelimiter.WithClientClock())
		}
		q := newQueue(t, rdb, 12)
		w := newWorker(t, q, 5, opts...)
		start := time.Now()
		var begun []time.Duration
		w.handle = func(context.Context, *job) error {
			begun = append(begun, time.Since(start))
			return nil
		}
		w.report = func(event string, _ *job) {
			if event == eventDone && len(begun) == 12 {
				cancel()
			}
		}
		w.run(ctx)
		require.Len(t, begun, 12)
		for i, at := range begun {
			require.Equal(t, time.Duration(i)*200*time.Millisecond, at)
		}
		left(t, q, 0)
	})
}

// TestWorkerEnds checks that a worker that is told to end in the middle of a job finishes it, and that one that waits for a
// permit leaves its job in the queue.
func TestWorkerEnds(t *testing.T) {
	for _, at := range []string{"in its work", "waiting for a permit"} {
		t.Run(at, func(t *testing.T) {
			q := newQueue(t, redistest.Client(t), 2)
			ctx, cancel := context.WithCancel(t.Context())
			w := newWorker(t, q, 1)
			jobs := 0
			w.handle = func(ctx context.Context, j *job) error {
				if jobs++; at == "in its work" {
					cancel()
				}
				return ctx.Err()
			}
			w.report = func(event string, j *job) {
				if event == eventDone && ctx.Err() == nil { // then it takes the next job, and waits for the permit, which takes a second
					go func() {
						defer cancel()
						for t.Context().Err() == nil {
							pending, err := q.rdb.XPending(t.Context(), q.stream, q.group).Result()
							if err != nil || pending.Count > 0 && pending.Lower != j.ID {
								return
							}
							time.Sleep(time.Millisecond)
						}
					}()
				}
			}
			w.run(ctx)
			require.Equal(t, 1, jobs)
			left(t, q, 1)

			q.abandoned = soon
			ctx, cancel = context.WithCancel(t.Context())
			other := newWorker(t, q, 10)
			other.jobs.name = "b"
			other.handle = func(context.Context, *job) error { return nil }
			again := 0
			other.report = func(event string, j *job) {
				if event == eventDone && j.Again {
					again++
				}
				if n, err := q.left(t.Context()); err != nil || n == 0 {
					cancel()
				}
			}
			other.run(ctx)
			require.Equal(t, map[string]int{"in its work": 0, "waiting for a permit": 1}[at], again)
			left(t, q, 0)
		})
	}
}

func TestFailedWorkIsDoneAgain(t *testing.T) {
	q := newQueue(t, redistest.Client(t), 1)
	q.abandoned = soon
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorker(t, q, 10)
	var events []string
	w.handle = func(context.Context, *job) error {
		if len(events) == 1 {
			return errors.New("the platform is away")
		}
		return nil
	}
	w.report = func(event string, _ *job) {
		if events = append(events, event); event == eventDone {
			cancel()
		}
	}
	w.run(ctx)
	require.Equal(t, []string{eventBegins, eventFailed, eventAgain, eventBegins, eventDone}, events)
	left(t, q, 0)
}

func TestMostInAnyWindow(t *testing.T) {
	epoch := time.Now()
	for want, at := range map[int64][]int{
		0: {}, 1: {0, 1000, 2000}, 2: {0, 999, 1999}, 3: {0, 500, 900, 1000, 1500},
	} {
		p := &pace{grants: map[string]grant{}}
		for i, ms := range at {
			p.grants[fmt.Sprint(i)] = grant{epoch.Add(time.Duration(ms) * time.Millisecond), 1}
		}
		require.Equal(t, want, p.most(time.Second), "%v", at)
	}
}

// TestSumUpFindsWhatIsWrong checks that the program's verdict can be a bad one.
func TestSumUpFindsWhatIsWrong(t *testing.T) {
	rdb := redistest.Client(t)
	for name, c := range map[string]struct {
		permits int
		took    time.Duration
		results map[string]any
		want    string
	}{
		"all is well":     {4, 500 * time.Millisecond, map[string]any{"job-1": 1, "job-2": 2}, ""},
		"a lost job":      {3, time.Second, map[string]any{"job-1": 3}, "1 jobs were lost"},
		"a full window":   {5, time.Second, map[string]any{"job-1": 1, "job-2": 1}, "5 jobs in one window of 1s, where 4 are allowed"},
		"without permits": {0, 499 * time.Millisecond, map[string]any{"job-1": 1, "job-2": 2}, "3 jobs took only 499ms, with 250ms between two"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			f := &fleet{settings: &settings{name: redistest.Key(t), jobs: 2, permits: 4, interval: time.Second}, rdb: rdb, stdout: &out}
			require.NoError(t, rdb.HSet(t.Context(), f.results(), c.results).Err())
			p := &pace{grants: map[string]grant{"g": {time.Now(), int64(c.permits)}}}
			err := f.sumUp(t.Context(), p, c.took)
			if c.want == "" {
				require.NoError(t, err)
				require.Contains(t, out.String(), "2 of 2 jobs done, 0 lost, 1 more than once")
			} else {
				require.EqualError(t, err, c.want)
			}
		})
	}
}
