// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/stretchr/testify/require"
)

// TestWrittenOff checks when attempts end that get no reply: when the witness has its reply to what it sent half a second later or more, and
// nothing else holds them up, and unless it lasts, when an outage begins.
func TestWrittenOff(t *testing.T) {
	others := func(s *server) { // have replies
		for range 300 {
			go func() { _ = s.attempt(time.Millisecond, nil) }()
			time.Sleep(10 * time.Millisecond)
		}
	}
	for name, c := range map[string]struct {
		takes  time.Duration // a probe
		err    error         // and how it ends
		holds  bool
		also   func(s *server)
		ends   time.Duration
		with   error
		probes int
		kind   Traits
	}{
		"alone":                     {ends: 550 * time.Millisecond, with: errWrittenOff, probes: 1},
		"beside others":             {also: others, ends: 640 * time.Millisecond, with: errWrittenOff, probes: 1},
		"a reply to the witness":    {takes: 400 * time.Millisecond, ends: 950 * time.Millisecond, with: errWrittenOff, probes: 1},
		"an error for the witness":  {err: fails(denied), ends: 550 * time.Millisecond, with: errWrittenOff, probes: 1},
		"a full pool":               {holds: true, ends: 2900 * time.Millisecond, probes: 5},
		"a full pool beside others": {holds: true, also: func(s *server) { time.AfterFunc(time.Second, func() { s.holding(false) }); others(s) }, ends: 1640 * time.Millisecond, with: errWrittenOff, probes: 2},
		"no descriptor":             {err: fails(full), ends: 2900 * time.Millisecond, probes: 5},
		"no new connection":         {err: fails(refused), also: others, ends: 640 * time.Millisecond, with: errWrittenOff, probes: 1},
		"what stays":                {ends: 2900 * time.Millisecond, probes: 5, kind: Traits{Stays: true}},
		"the same beside others":    {also: others, ends: 2900 * time.Millisecond, kind: Traits{Stays: true}},
		"what stays, in an outage":  {takes: time.Hour, ends: 1500 * time.Millisecond, with: silent.Err, probes: 2, kind: Traits{Stays: true}},
		"whose grant goes back":     {ends: 550 * time.Millisecond, with: errWrittenOff, probes: 1, kind: Traits{Lasts: true}},
		"the same in an outage":     {takes: time.Hour, ends: 2900 * time.Millisecond, probes: 3, kind: Traits{Lasts: true}},
		"an outage that ends":       {takes: time.Hour, also: func(s *server) { time.Sleep(1600 * time.Millisecond); s.set(0, nil) }, ends: -1, with: errWrittenOff, probes: 3, kind: Traits{Lasts: true}},
		"an outage":                 {takes: time.Hour, ends: 1500 * time.Millisecond, with: silent.Err, probes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{begin: time.Now(), done: make(chan struct{})}
				s.set(c.takes, c.err)
				s.holds = c.holds
				if c.also != nil {
					go c.also(s)
				}
				err := s.one(2900*time.Millisecond, nil, c.kind)
				ended := time.Since(s.begin)
				if c.with != nil {
					require.Equal(t, &retry.Error{Err: c.with, Outcome: retry.Unknown, Ended: true}, err)
				} else {
					require.NoError(t, err)
				}
				if c.ends > 0 {
					require.InDelta(t, c.ends, ended, float64(20*time.Millisecond))
				} else {
					require.Less(t, ended, 2900*time.Millisecond)
					require.False(t, s.h.Down())
				}
				require.Len(t, s.asked(), c.probes)
				s.end()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.True(t, s.h.Idle())
			})
		})
	}
}

// TestReplyThatComesWithThatOfTheWitness has a server that stood still reply to all at once, the witness first: nothing is written off.
func TestReplyThatComesWithThatOfTheWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{begin: time.Now(), done: make(chan struct{})}
		s.set(400*time.Millisecond, nil)
		require.NoError(t, s.attempt(940*time.Millisecond, nil))
		time.Sleep(time.Minute)
		require.True(t, s.h.Idle())
	})
}

// TestOutageEndsTheAttemptsBeforeIt checks that an outage ends the attempts that were sent before it, and none that are sent at that very instant.
func TestOutageEndsTheAttemptsBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{begin: time.Now(), done: make(chan struct{})}
		s.set(0, fails(loading))
		go func() { _ = s.attempt(0, fails(loading)) }()
		time.Sleep(350 * time.Millisecond)
		ended := make(chan error)
		go func() { ended <- s.attempt(time.Minute, nil) }()
		require.Equal(t, &retry.Error{Err: loading.Err, Outcome: retry.Unknown, Ended: true}, <-ended)
		require.Equal(t, 400*time.Millisecond, time.Since(s.begin))
		require.True(t, s.h.Down())
		s.set(0, nil)
		require.NoError(t, s.attempt(300*time.Millisecond, nil))
		time.Sleep(time.Minute)
		require.True(t, s.h.Idle())
	})
}

// TestContextOfAnAttempt checks that the context of an attempt ends with that of its caller or when it is written off, has the values of the first, and
// that who has left is not told that his attempt was written off.
func TestContextOfAnAttempt(t *testing.T) {
	type key struct{}
	values := context.WithValue(context.Background(), key{}, 1)
	for name, ctx := range map[string]context.Context{"values": values, "none": context.Background(), "a caller who may leave": t.Context()} {
		var h Health
		a := h.Begin(&server{done: make(chan struct{})}, Traits{})
		bounded, end := a.Context(ctx)
		require.NoError(t, bounded.Err(), name)
		require.Equal(t, ctx.Value(key{}), bounded.Value(key{}), name)
		child, cancel := context.WithCancel(bounded)
		h.mu.Lock()
		h.endLocked(a.with, errWrittenOff)
		h.mu.Unlock()
		<-child.Done()
		<-bounded.Done()
		cancel()
		end()
		left, leave := context.WithCancel(context.Background())
		leave()
		failure := &retry.Error{Err: bounded.Err(), Outcome: retry.Unknown}
		require.Same(t, failure, h.End(left, a, failure), name)
	}
	ctx, cancel := context.WithCancel(values)
	var h Health
	a := h.Begin(&server{done: make(chan struct{})}, Traits{})
	bounded, end := a.Context(ctx)
	defer end()
	require.Equal(t, 1, bounded.Value(key{}))
	cancel()
	<-bounded.Done()
	require.NoError(t, a.with.ctx.Err(), "others go on")
	_ = h.End(ctx, a, nil)
}
