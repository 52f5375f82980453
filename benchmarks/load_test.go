// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/redistest/worker"
)

// A load measures callers that make requests as fast as they can.
type load struct {
	callers   int           // of each process
	limiters  int           // of which each request takes one at random; 0 is one
	processes int           // 0 for this one alone
	interval  time.Duration // 0 for an hour, in which nothing expires
	reject    bool
	flights   bool // how long pipelines keep Redis is measured instead
}

// job returns limiters with a few more permits than so many requests need.
func (l load) job(n int) job {
	j := job{Limiters: max(1, l.limiters), Permits: int64(n + l.first() + 10), Interval: cmp.Or(l.interval, time.Hour), Expires: l.interval > 0}
	if l.reject {
		j.Permits = 1
	}
	return j
}

// first returns how many requests are made before those that are measured: they connect, and send the script.
func (l load) first() int {
	if l.reject {
		return 3 // which leave no permit
	}
	return min(2*l.callers, 256)
}

func (l load) run(b meter, at place, c contestant, n int) {
	if c.name == "limit-sliding-log" && l.callers == 1 {
		l.interval = 20 * time.Millisecond // nearly every call of its only caller removes expired grants
	}
	clock, flights := timer(b), &flightClock{timer: b}
	if l.flights {
		at.hook, clock = flights, flights
	}
	s := c.open(b, at, l.job(n))
	defer s.close()
	t, u := l.measure(b, clock, at, c, s, n)
	if l.flights {
		flights.report(b, n > 10*l.callers)
		return
	}
	b.ReportMetric(float64(t.Elapsed)/float64(n), "ns/op")
	b.ReportMetric(float64(u.cpu)/float64(n), "cpu-ns/op")
	b.ReportMetric(float64(u.script)/float64(n), "script-ns/op")
	b.ReportMetric(float64(u.calls)/float64(n), "calls/op")
	b.ReportMetric(float64(u.commands)/float64(n), "commands/op")
	if l.processes == 0 {
		b.ReportMetric(float64(t.P99), "p99-ns")
	}
	if l.reject {
		b.ReportMetric(float64(u.calls)/t.Elapsed.Seconds(), "calls/s")
	} else if l.limiters == 0 && l.interval == 0 {
		b.ReportMetric(at.memory(b, s.keys)/float64(n+l.first()), "redis-B/op")
	}
}

// measure returns what callers and Redis counted, after comparing the one with the other.
func (l load) measure(b testing.TB, clock timer, at place, c contestant, s *session, n int) (t tally, u usage) {
	first := s.run(b, c, l, l.first(), untimed{})
	cpu := at.resetUsage(b)
	if l.processes > 0 {
		t = l.fleet(b, clock, at, c, n)
	} else {
		t = s.run(b, c, l, n, clock)
	}
	u = at.usage(b)
	u.cpu -= cpu
	require.True(b, len(at.nodes) == 1 || u.idlest > 0 || n < l.callers, "a node of the cluster has run no script")
	granted, rejected := int64(n), int64(0)
	if l.reject {
		granted, rejected = 0, int64(n)
	}
	require.Equal(b, []int64{granted, rejected}, []int64{t.granted(), t.Rejected}, "requests that were granted and rejected")
	require.True(b, l.callers*max(1, l.processes) > 1 || u.calls >= int64(n), "a caller without company made %d script calls for %d requests", u.calls, n)
	for i := range t.Told {
		t.Told[i] += first.Told[i]
	}
	require.NoError(redistest.Final(b), s.held(b.Context(), t.Told))
	return t, u
}

// A tally is what the callers of a job were told.
type tally struct {
	Told     []int64 // permits, by limiter; of Redisson in Java those of all
	Rejected int64
	Elapsed  time.Duration
	P99      time.Duration
}

func (t tally) granted() (total int64) {
	for _, n := range t.Told {
		total += n
	}
	return total
}

// run makes n requests.
func (s *session) run(b testing.TB, c contestant, l load, n int, clock timer) tally {
	if s.load != nil {
		return s.load(b, l.callers, n, clock)
	}
	ctx := context.Background()
	if c.endable {
		ctx = b.Context()
	}
	return drive(ctx, b, l.callers, n, max(1, l.limiters), s.ask, clock)
}

// drive divides n requests among callers, and takes the time from when all of these are ready.
func drive(ctx context.Context, tt require.TestingT, callers, n, limiters int, ask func(context.Context, int) (bool, error), clock timer) tally {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	took, granted, errs := make([]time.Duration, n), make([]int32, n), make([]error, callers)
	ready.Add(callers)
	for w := range callers {
		done.Go(func() {
			random := rand.NewPCG(rand.Uint64(), rand.Uint64())
			ready.Done()
			<-start
			// Since reads one clock, as System.nanoTime does for Java's callers; Now reads two.
			began, before := time.Now(), time.Duration(0)
			for at := n * w / callers; at < n*(w+1)/callers; at++ {
				i := int(random.Uint64() % uint64(limiters))
				ok, err := ask(ctx, i)
				if err != nil {
					errs[w] = err
					return
				}
				if granted[at] = -1; ok {
					granted[at] = int32(i)
				}
				now := time.Since(began)
				took[at], before = now-before, now
			}
		})
	}
	ready.Wait()
	runtime.GC()
	clock.ResetTimer()
	began := time.Now()
	close(start)
	done.Wait()
	elapsed := time.Since(began)
	clock.StopTimer()
	t := tally{Told: make([]int64, limiters), Elapsed: elapsed}
	for _, i := range granted {
		if i < 0 {
			t.Rejected++
		} else {
			t.Told[i]++
		}
	}
	require.NoError(tt, errors.Join(errs...))
	t.P99 = quantile(took, 99)
	return t
}

// quantile returns the duration that so many per cent of all are below. It sorts them.
func quantile(all []time.Duration, percent int) time.Duration {
	slices.Sort(all)
	if len(all) == 0 {
		return 0
	}
	return all[min(len(all)*percent/100, len(all)-1)]
}

// A share is the part of a load that one of several processes has.
type share struct {
	At                 []string
	Contestant, Script string // Script is Redisson's, if that is the contestant
	Job                job
	Callers, Calls     int
}

// Run implements worker.Plan: it returns a tally.
func (o *share) Run() any {
	captured = o.Script
	at := placeOf(o.At...)
	s := contestantNamed(o.Contestant).open(together{at}, at, o.Job)
	defer s.close()
	return drive(context.Background(), together{at}, o.Callers, o.Calls, o.Job.Limiters, s.ask, together{at})
}

// A together is the timer of a process that begins when all are ready, and ends it if it fails.
type together struct{ at place }

func (t together) ResetTimer() {
	ctx := context.Background()
	require.NoError(t, errors.Join(t.at.nodes[0].LPush(ctx, "ready", 1).Err(), t.at.nodes[0].BLPop(ctx, 0, "start").Err()))
}

func (together) StopTimer()                        {}
func (together) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }
func (together) FailNow()                          { os.Exit(1) }

// fleet makes n requests from all processes together.
func (l load) fleet(b testing.TB, clock timer, at place, c contestant, n int) tally {
	ctx, j, rdb, script := b.Context(), l.job(n), at.nodes[0], ""
	if c.name == "script" {
		script = scriptText(b)
	}
	var plans []worker.Plan
	for i := range l.processes {
		plans = append(plans, &share{at.addrs, c.name, script, j, l.callers, n*(i+1)/l.processes - n*i/l.processes})
	}
	crew := worker.Start(b, plans...)
	for range crew {
		require.NoError(b, rdb.BLPop(ctx, time.Minute, "ready").Err())
	}
	clock.ResetTimer()
	for range crew {
		require.NoError(b, rdb.LPush(ctx, "start", 1).Err())
	}
	all := tally{Told: make([]int64, j.Limiters)}
	for _, process := range crew {
		var t tally
		require.NoError(b, process.Result(&t))
		for i, n := range t.Told {
			all.Told[i] += n
		}
		all.Rejected += t.Rejected
		all.Elapsed = max(all.Elapsed, t.Elapsed)
	}
	clock.StopTimer()
	return all
}
