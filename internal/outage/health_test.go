// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/stretchr/testify/require"
)

// The ways in which an attempt or a probe fails.
var (
	reset    = retry.Error{Err: errors.New("reset"), Outcome: retry.Unknown}
	refused  = retry.Error{Err: errors.New("refused"), Outcome: retry.NotExecuted}
	silent   = retry.Error{Err: errors.New("silent"), Outcome: retry.NotExecuted, Silent: true}
	loading  = retry.Error{Err: errors.New("LOADING"), Outcome: retry.NotExecuted, Answered: true}
	oom      = retry.Error{Err: errors.New("OOM"), Outcome: retry.NotExecuted, Answered: true, ReadOnly: true}
	full     = retry.Error{Err: errors.New("pool timeout"), Outcome: retry.NotExecuted, Local: true}
	moved    = retry.Error{Err: errors.New("MOVED"), Outcome: retry.NotExecuted, Answered: true, Elsewhere: true}
	password = retry.Error{Err: errors.New("WRONGPASS"), Outcome: retry.NotExecuted, Answered: true, Handshake: true}
	unsent   = retry.Error{Err: errors.New("shard is down"), Outcome: retry.NotExecuted, Unsent: true}
	denied   = retry.Error{Err: errors.New("NOPERM"), Outcome: retry.Executed, Answered: true}
)

func fails(e retry.Error) error { return &e }

// A server is one whose replies to probes are set, and a log of what the witness does.
type server struct {
	h     Health
	begin time.Time
	done  chan struct{}

	mu     sync.Mutex
	takes  time.Duration // that the reply to a probe takes
	err    error         // which it is
	holds  bool          // calls wait to be sent
	probes []time.Duration
	log    []string
}

func (s *server) set(takes time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes, s.err = takes, err
}

func (s *server) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%v ", time.Since(s.begin))+fmt.Sprintf(format, args...))
}

func (s *server) Probe(patience time.Duration) error {
	s.mu.Lock()
	s.probes = append(s.probes, time.Since(s.begin))
	takes, err := s.takes, s.err
	s.mu.Unlock()
	if takes >= patience {
		time.Sleep(patience)
		return fails(silent)
	}
	time.Sleep(takes)
	return err
}

func (s *server) holding(holds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = holds
}

func (s *server) Spares() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.holds
}

func (s *server) Sweep()                               { s.note("sweep") }
func (s *server) Done() <-chan struct{}                { return s.done }
func (s *server) Began(_ *Health, err error)           { s.note("began: %v", err) }
func (s *server) Ended(d time.Duration, granted int64) { s.note("ended after %v", d) }

// asked returns when there were probes, and told the log.
func (s *server) asked() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.probes)
}

func (s *server) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// attempt makes an attempt that ends with err after takes, if its caller does not leave before, and it is not written off.
func (s *server) attempt(takes time.Duration, err error) error { return s.one(takes, err, Traits{}) }

// one makes an attempt, or a replay.
func (s *server) one(takes time.Duration, err error, k Traits) error {
	a := s.h.Begin(s, k)
	ctx, end := a.Context(context.Background())
	defer end()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		err = fails(retry.Error{Err: ctx.Err(), Outcome: retry.Unknown})
	}
	return s.h.End(context.Background(), a, err)
}

// leave makes an attempt whose caller leaves after takes.
func (s *server) leave(takes time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), takes)
	defer cancel()
	sent := s.h.Begin(s, Traits{})
	<-ctx.Done()
	s.h.End(ctx, sent, &retry.Error{Err: ctx.Err(), Outcome: retry.Unknown})
}

// TestWhatIsAnOutage checks, for what attempts and probes meet, when an outage begins, if it does, and that none begins while a
// new connection is answered.
func TestWhatIsAnOutage(t *testing.T) {
	for _, c := range []struct {
		name   string
		probe  time.Duration // how long a probe takes
		err    error         // and how it ends
		calls  func(s *server)
		log    []string
		failed bool // the attempts of these calls wait for the witness
	}{
		{"a reply", 0, fails(refused), func(s *server) { _ = s.attempt(499*time.Millisecond, nil) }, nil, false},
		{"an error reply", 0, fails(refused), func(s *server) { s.attempt(0, fails(denied)) }, nil, false},
		{"a reply from elsewhere", 0, fails(refused), func(s *server) { s.attempt(0, fails(moved)) }, nil, false},
		{"a full pool", 0, nil, func(s *server) { s.attempt(0, fails(full)) }, []string{"500ms sweep"}, false},
		{"a connection breaks, and Redis is there", 0, nil, func(s *server) { s.attempt(0, fails(reset)) }, []string{"0s sweep"}, true},
		{"a connection breaks, and the witness is denied its write", 0, fails(denied), func(s *server) { s.attempt(0, fails(reset)) }, []string{"0s sweep"}, true},
		{"a connection breaks, and the process has no descriptor", 0, fails(full), func(s *server) { s.attempt(0, fails(reset)) }, []string{"0s sweep"}, true},
		{"refused", 0, fails(refused), func(s *server) { s.attempt(0, fails(refused)) }, []string{"400ms began: refused"}, true},
		{"loading", 0, fails(loading), func(s *server) { s.attempt(0, fails(loading)) }, []string{"400ms began: LOADING"}, true},
		{"a wrong password of a known server", 0, fails(password), func(s *server) { s.attempt(0, nil); s.attempt(0, fails(password)) },
			[]string{"400ms began: WRONGPASS"}, true},
		{"a wrong password from the start", 0, fails(password), func(s *server) {
			e := password
			s.attempt(0, &e)
			require.Equal(s.t(), retry.Executed, e.Outcome)
		}, nil, false},
		{"a silence of 0.89 s", 400 * time.Millisecond, nil, func(s *server) { s.attempt(890*time.Millisecond, nil) }, []string{"900ms sweep"}, false},
		{"a silence", time.Hour, nil, func(s *server) { s.attempt(time.Minute, fails(reset)) }, []string{"1.5s began: silent"}, false},
		{"a silence whose caller has left", time.Hour, nil, func(s *server) { s.leave(200 * time.Millisecond) }, []string{"1.5s began: silent"}, false},
		{"a silence of many short calls", time.Hour, nil, func(s *server) {
			for range 5 {
				s.leave(200 * time.Millisecond)
			}
		}, []string{"1.5s began: silent"}, false},
		{"late replies", time.Hour, nil, func(s *server) {
			for i := range 20 {
				go func() {
					time.Sleep(time.Duration(i) * 100 * time.Millisecond)
					s.attempt(time.Second, nil)
				}()
			}
		}, []string{"1.5s began: silent"}, false},
		{"no new connection, but replies on old ones", time.Hour, fails(refused), func(s *server) {
			go func() { _ = s.attempt(time.Minute, nil) }()
			time.Sleep(600 * time.Millisecond)
			s.attempt(0, nil)
			time.Sleep(time.Second)
			close(s.done)
		}, []string{"1.55s sweep"}, false},
		{"refused, but replies on old connections", 0, fails(refused), func(s *server) {
			s.attempt(0, fails(refused))
			time.Sleep(50 * time.Millisecond)
			s.attempt(0, nil)
		}, []string{"100ms sweep"}, true},
		{"writes are refused, and reads have replies", 0, fails(oom), func(s *server) {
			s.attempt(0, fails(oom))
			for range 10 {
				time.Sleep(50 * time.Millisecond)
				s.attempt(0, nil)
			}
		}, []string{"400ms began: OOM"}, true},
		{"refused for 0.3 s", 0, fails(refused), func(s *server) {
			s.attempt(0, fails(refused))
			time.Sleep(250 * time.Millisecond)
			s.set(0, nil)
		}, []string{"300ms sweep"}, true},
		{"a slow call fails, and Redis refuses for a moment", 0, fails(refused), func(s *server) {
			s.attempt(450*time.Millisecond, fails(reset))
			time.Sleep(150 * time.Millisecond)
			s.set(0, nil)
		}, []string{"650ms sweep"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{begin: time.Now(), done: make(chan struct{})}
				current = t
				s.set(c.probe, c.err)
				go c.calls(s)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, c.log, s.told())
				s.end()
				require.Equal(t, len(c.log) > 0 || c.failed, len(s.asked()) > 0)
				time.Sleep(2 * time.Minute)
				require.True(t, s.h.Idle())
			})
		})
	}
}

var current *testing.T

func (s *server) t() *testing.T { return current }

// end lets the witness end.
func (s *server) end() {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
}

// TestWhatEndsAnOutage checks that an outage ends with a probe that gets its reply, after a silence with a prompt one, and with
// nothing else, and that the witness asks once a second.
func TestWhatEndsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{begin: time.Now(), done: make(chan struct{})}
		s.set(time.Hour, nil)
		go func() { _ = s.attempt(time.Minute, nil) }()
		time.Sleep(1500*time.Millisecond + 1)
		require.True(t, s.h.Down())
		over, err := s.h.Outage()
		require.ErrorContains(t, err, "silent")
		since, _ := s.h.Since()
		require.Equal(t, 1500*time.Millisecond, since.Sub(s.begin))
		s.h.CountGrant()
		s.attempt(0, nil) // a call that was on its way
		require.True(t, s.h.Down())
		s.set(600*time.Millisecond, nil) // too slow, after a silence
		time.Sleep(10 * time.Second)
		require.True(t, s.h.Down())
		for i, at := range s.asked()[2:] {
			if i > 0 {
				require.GreaterOrEqual(t, at-s.asked()[i+1], time.Second)
				require.LessOrEqual(t, at-s.asked()[i+1], 1250*time.Millisecond)
			}
		}
		s.set(0, fails(loading)) // not silent any more
		time.Sleep(2 * time.Second)
		_, err = s.h.Outage()
		require.ErrorContains(t, err, "LOADING")
		s.set(600*time.Millisecond, nil)
		<-over
		require.False(t, s.h.Down())
		require.NoError(t, s.h.Failure())
		synctest.Wait()
		require.Len(t, s.told(), 3)
		require.Contains(t, s.told()[2], "ended after")
		time.Sleep(time.Minute)
		require.True(t, s.h.Idle())
	})
}

// TestTheClientHoldsAServerToBeDown checks that the end of an outage is noticed soon after the redis client lets the witness ask.
func TestTheClientHoldsAServerToBeDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{begin: time.Now(), done: make(chan struct{})}
		s.set(0, fails(unsent))
		s.attempt(0, fails(refused))
		time.Sleep(5 * time.Second)
		over, err := s.h.Outage()
		require.Error(t, err)
		s.set(0, nil)
		back := time.Now()
		<-over
		require.LessOrEqual(t, time.Since(back), refusedEvery)
		synctest.Wait()
	})
}

// TestUserThatWasLetIn checks that a server that does not let a user in is a wrong setting only if no server of its Redis has let
// it in before: neither the one that it replaces, nor any in a reply to another call.
func TestUserThatWasLetIn(t *testing.T) {
	refuses := func(h *Health) retry.Outcome {
		e := password
		h.End(context.Background(), h.Begin(&server{done: make(chan struct{})}, Traits{}), &e)
		return e.Outcome
	}
	synctest.Test(t, func(t *testing.T) {
		var all Healths
		for _, addr := range []string{"", "a"} {
			require.Equal(t, retry.Executed, refuses(all.Of(addr)))
		}
		all.Of("b").End(context.Background(), all.Of("b").Begin(nil, Traits{}), nil)
		require.Equal(t, retry.NotExecuted, refuses(all.Of("c")), "a replica has taken over")
		require.Equal(t, retry.Executed, refuses(all.Of("a")), "another shard may have another password")
		all.Replied()
		require.Equal(t, retry.NotExecuted, refuses(all.Of("a")))
		require.Equal(t, retry.NotExecuted, refuses(all.Of("")))
		time.Sleep(time.Second) // the witnesses get a reply
		synctest.Wait()
	})
}

// TestALostReplyAfterAnOutage checks that a call that fails just after the end of an outage begins no other one.
func TestALostReplyAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{begin: time.Now(), done: make(chan struct{})}
		s.set(0, fails(refused))
		s.attempt(0, fails(refused))
		time.Sleep(time.Second)
		over, _ := s.h.Outage()
		s.set(0, nil)
		<-over
		s.attempt(0, fails(reset))
		s.h.Await(nil, nil)
		require.False(t, s.h.Down())
		require.Equal(t, "began: refused", s.told()[0][len("400ms "):])
		require.Len(t, s.told(), 4, "began, sweep, ended, sweep")
	})
}

// TestWitnessEndsWithItsClient checks that the witness ends when the client is closed, during a suspicion and during an outage.
func TestWitnessEndsWithItsClient(t *testing.T) {
	for _, after := range []time.Duration{200 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{begin: time.Now(), done: make(chan struct{})}
			s.set(0, fails(refused))
			s.attempt(0, fails(refused))
			time.Sleep(after)
			close(s.done)
			synctest.Wait()
			require.True(t, s.h.Idle())
			require.False(t, s.h.Down())
		})
	}
}

// TestProbePause checks that pauses differ, and are between 1 and 1.25 s.
func TestProbePause(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := ProbePause()
		require.GreaterOrEqual(t, d, time.Second)
		require.Less(t, d, 1250*time.Millisecond)
		seen[d] = true
	}
	require.Greater(t, len(seen), 50)
}

// TestFrozenServerWithoutASecondConnection has the witness get one connection to a server that stands still, and this process lack
// what a second one needs: what the first shows counts.
func TestFrozenServerWithoutASecondConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{begin: time.Now(), done: make(chan struct{})}
		s.set(time.Hour, nil)
		go func() { _ = s.attempt(time.Minute, nil) }()
		for len(s.asked()) == 0 {
			time.Sleep(time.Millisecond)
		}
		s.set(0, fails(full))
		time.Sleep(1100 * time.Millisecond)
		require.Len(t, s.asked(), 2)
		require.Equal(t, []string{"1.5s began: silent"}, s.told())
		s.end()
		time.Sleep(time.Minute)
	})
}

// TestOneDeadServerOfSeveral has a load balancer lead the first connections of the witness to a server that is dead, and the next to
// one that is not: that is no outage, whatever the dead one does.
func TestOneDeadServerOfSeveral(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration // what the dead one does
		err   error
		begin func(s *server)
	}{
		"silent, after a silence":                 {time.Hour, nil, func(s *server) { s.attempt(time.Minute, nil) }},
		"silent, after a reset":                   {time.Hour, nil, func(s *server) { s.attempt(0, fails(reset)) }},
		"silent, and then a reset, after a reset": {900 * time.Millisecond, fails(reset), func(s *server) { s.attempt(0, fails(reset)) }},
		"refuses, after a silence":                {0, fails(refused), func(s *server) { s.attempt(time.Minute, nil) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{begin: time.Now(), done: make(chan struct{})}
			s.set(c.takes, c.err)
			go c.begin(s)
			for len(s.asked()) == 0 {
				time.Sleep(time.Millisecond)
			}
			s.set(0, nil)
			time.Sleep(time.Second)
			require.GreaterOrEqual(t, len(s.asked()), 2, name)
			require.False(t, s.h.Down(), name)
			require.Regexp(t, "sweep$", s.told()[0], name)
			s.end()
			time.Sleep(time.Minute)
			synctest.Wait()
		})
	}
}
