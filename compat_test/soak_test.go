// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/redistest/worker"
)

const (
	soakRate     = 100
	soakInterval = 500 * time.Millisecond
)

// soakPairs are two limiters, each with two JVMs of different versions that can share one. 3.15.5 and 4.7.0 cannot;
// see TestStrangers. The Go processes work on both limiters.
var soakPairs = [][]string{{"3.15.5", "3.16.3"}, {"3.20.1", "4.7.0"}}

// soakDuration returns the length of a soak: a minute if RATELIMITER_COMPAT_LONG is set.
func soakDuration() time.Duration {
	if longForm() {
		return time.Minute
	}
	return 10 * time.Second
}

// TestSoak checks that nothing fails while JVMs of different versions and three Go processes use one limiter. What
// the callers were told is, to the permit, what Redis granted; no window holds too many permits; and afterwards all
// permits are back.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := startSoak(t, false)
	s.goes(3, soakDuration())
	for _, l := range s.limiters {
		for _, p := range l.java {
			s.hammer(l, p, soakDuration())
		}
	}
	s.wait()
	for _, l := range s.limiters {
		told, grants := l.told.Told(), s.seen.of(l.name)
		require.Empty(t, told.Unavailable)
		require.Empty(t, told.Errors)
		require.Equal(redistest.Final(t), told.Permits(), grants.Permits(), "%s: a grant that nobody was told of, or the reverse", l.name)
		requireWindows(t, grants, soakRate, soakInterval)
	}
	s.requireAllBack()
	s.requireJavaGot()
	for _, l := range s.limiters {
		fullest := s.seen.of(l.name).FullestBy(soakInterval, byScore).Permits()
		require.Greater(t, fullest, int64(soakRate-5), "%s: no window is full, so that they do not compete", l.name) // none asks for more than 5
	}
}

// TestSoakRestarts checks the same while a JVM of each pair, a Go process and Redis are killed and started again.
// Redis writes every grant before it replies (AOF, fsync always).
func TestSoakRestarts(t *testing.T) {
	t.Parallel()
	s := startSoak(t, true)
	all := soakDuration()
	began := time.Now()
	at := func(part int) { time.Sleep(time.Until(began.Add(all * time.Duration(part) / 10))) }
	left := func() time.Duration { return time.Until(began.Add(all)) }
	s.goes(2, all)
	victim := s.goes(1, all)[0]
	for _, l := range s.limiters {
		for _, p := range l.java {
			s.hammer(l, p, all)
		}
	}

	at(2)
	for _, l := range s.limiters {
		l.java[1].kill()
		l.java[1] = s.jvm(l.java[1].version)
		s.hammer(l, l.java[1], left())
	}
	at(4)
	s.killed.Store(victim, true)
	victim.Kill()
	s.goes(1, left())
	at(6)
	missed := s.restartRedis()
	at(9)
	s.wait()
	for _, l := range s.limiters {
		told, grants := l.told.Told(), s.seen.of(l.name)
		require.Empty(t, told.Errors, "errors that Redis' restart does not explain")
		require.LessOrEqual(redistest.Final(t), told.Permits(), grants.Permits(), "%s: a grant that Redis does not know of", l.name)
		requireWindows(t, grants, soakRate, soakInterval)
		t.Logf("%v: %d permits granted, callers told of %d; %d of the grants from Redis' last moment; faults %v",
			l.versions, grants.Permits(), told.Permits(), missed, told.Unavailable)
	}
	s.requireAllBack()
	s.requireJavaGot()
}

// A soak is two limiters on one Redis, with a monitor.
type soak struct {
	testing.TB
	server   *redistest.Server
	gate     *redistest.Proxy // closed after a restart, so that nobody calls before the monitor listens
	seen     *monitor
	rdb      *redis.Client
	limiters []*soakLimiter
	running  sync.WaitGroup
	killed   sync.Map // holds *worker.Process
}

type soakLimiter struct {
	name     string
	versions []string
	java     []*peer
	told     grantlog.Ledger
}

// requireJavaGot checks that Java got permits, too.
func (s *soak) requireJavaGot() {
	s.Helper()
	for _, l := range s.limiters {
		byJava := l.told.Told().Only(func(g grantlog.Grant) bool { return g.By != "Go" }).Permits()
		s.Logf("%v: %d permits, %d of them to Java", l.versions, l.told.Told().Permits(), byJava)
		redistest.Measured(s, byJava > 0, "%s: Java got nothing", l.name)
	}
}

func startSoak(t *testing.T, durable bool) *soak {
	var args []string
	if durable {
		args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	s := &soak{TB: t, server: redistest.Start(t, args...)}
	s.gate = redistest.StartProxy(t, s.server.Addr())
	s.rdb = s.server.Client(t)
	s.seen = startMonitor(t, s.rdb)
	for i, names := range soakPairs {
		l := &soakLimiter{name: fmt.Sprintf("soak.%d", i), versions: names}
		s.limiters = append(s.limiters, l)
		for _, name := range names {
			for _, v := range allVersions {
				if v.name == name {
					l.java = append(l.java, s.jvm(v))
				}
			}
		}
		require.Len(t, l.java, len(names))
		require.True(t, l.java[0].truth(t, "trySetRate", l.name, overall, soakRate, soakInterval))
	}
	return s
}

// jvm does what startPeer does, for a JVM that may be killed.
func (s *soak) jvm(v version) *peer {
	s.Helper()
	p := redistest.Must(newPeer(v, s.gate.Addr()))(s)
	s.Cleanup(func() {
		if !p.ended() {
			require.NoError(s, p.stop())
		}
	})
	return p
}

// goes starts n Go processes.
func (s *soak) goes(n int, during time.Duration) []*worker.Process {
	s.Helper()
	plan := &worker.Load{
		Addr: s.gate.Addr(), Mix: []int64{1, 1, 2, 5}, Modes: []string{"try", "wait:2s", "block"},
		Pause: 20 * time.Millisecond, During: during,
	}
	for _, l := range s.limiters {
		plan.Limiters = append(plan.Limiters, l.name)
	}
	out := worker.Start(s, slices.Repeat([]worker.Plan{plan}, n)...)
	for _, w := range out {
		s.running.Go(func() {
			var told map[string]grantlog.Told
			err := w.Result(&told)
			if _, killed := s.killed.Load(w); killed {
				return
			}
			if err != nil {
				s.Errorf("a Go process: %v", err)
				return
			}
			for _, l := range s.limiters {
				l.told.Merge("Go", told[l.name])
			}
		})
	}
	return out
}

// hammer starts the load of a JVM, in the modes of the Go processes. A version that forgets callers that it rejects
// too often blocks for a second at most.
func (s *soak) hammer(l *soakLimiter, p *peer, during time.Duration) {
	block := "block"
	if forgetsCallers(p.version) {
		block = "wait:1000"
	}
	for _, mode := range []string{"try", "wait:200", block} {
		call := p.begin("hammer", l.name, 1, during, "1,1,2,5", mode, 20)
		s.running.Go(func() {
			told, err := call.told(during + 2*callLimit)
			if p.ended() {
				return
			}
			if err != nil {
				s.Errorf("%s %s: %v", p.version, mode, err)
			}
			l.told.Merge(p.version.name, told)
		})
	}
}

func (s *soak) wait() { s.running.Wait() }

// restartRedis kills Redis while it is busy, and starts it again after a moment.
func (s *soak) restartRedis() (missed int) {
	s.server.Kill()
	s.gate.Reject()
	s.gate.Cut(false)
	s.seen.lost()
	time.Sleep(500 * time.Millisecond)
	s.server.Restart()
	s.seen.attach()
	for _, l := range s.limiters {
		missed += s.seen.reconcile("{" + l.name + "}:permits")
	}
	s.gate.Admit()
	return missed
}

// requireAllBack checks that after one idle interval every client sees, and gets, all permits.
func (s *soak) requireAllBack() {
	s.Helper()
	client := clienttest.New(s, s.rdb)
	defer client.Close()
	for _, l := range s.limiters {
		limiter := client.RateLimiter(l.name)
		idle := func() { time.Sleep(soakInterval + 10*time.Millisecond) }
		idle()
		require.EqualValues(s, soakRate, redistest.Must(limiter.AvailablePermits(s.Context()))(s))
		require.True(s, redistest.Must(limiter.TryAcquire(s.Context(), soakRate, 0))(s))
		for _, p := range l.java {
			idle()
			require.EqualValues(s, soakRate, p.number(s, "availablePermits", l.name), "%s", p.version)
			for {
				begun := time.Now()
				require.True(s, p.truth(s, "tryAcquire", l.name, soakRate), "%s", p.version)
				another := p.truth(s, "tryAcquire", l.name, 1)
				if time.Since(begun) < soakInterval {
					require.False(s, another, "%s", p.version)
					break
				}
				idle() // the machine stalled until the permits were back
			}
		}
	}
}
