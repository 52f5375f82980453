// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/stretchr/testify/require"
)

// A queue counts how often it is touched.
type queue struct {
	sync.Mutex
	Queue
	touched int
}

func (q *queue) Lock()        { q.Mutex.Lock() }
func (q *queue) Unlock()      { q.Mutex.Unlock() }
func (q *queue) Touch(string) { q.touched++ }

// A backend has no shortage, and the probes of the witness end with err.
type backend struct {
	Backend
	err error
}

func (backend) Shortage() error               { return nil }
func (b backend) Probe(d time.Duration) error { return b.err }
func (backend) Sweep()                        {}
func (backend) Spares() bool                  { return true }

// Backends are those of one server.
type backends struct{ Backends }

func (backends) Server(string) string { return "" }

func newLink() (*Link, *queue) {
	q := &queue{}
	return &Link{Name: "limiter", Backend: backend{}, Queue: q, System: &System{Backends: backends{}, Closed: make(chan struct{}), Began: func(*outage.Health, error) {}}}, q
}

// TestSteps checks that each call of an operation is repeated until there is a reply, that its results are yielded, and that
// an error ends it with the last result.
func TestSteps(t *testing.T) {
	plain, lost := errors.New("plain"), &retry.Error{Err: errors.New("lost"), Outcome: retry.Unknown}
	for _, c := range []struct {
		name    string
		reads   bool
		errs    []error // of the attempts, of which each that succeeds is the reply to a call
		results []int
		err     error
	}{
		{"one call", false, []error{nil}, []int{1}, nil},
		{"three calls", false, []error{nil, nil, nil}, []int{1, 2, 3}, nil},
		{"one that only reads", true, []error{nil}, []int{1}, nil},
		{"attempts that are lost", false, []error{nil, lost, lost, nil}, []int{1, 2}, nil},
		{"a reply that is an error", false, []error{nil, plain}, []int{1, 1}, plain},
		{"too many attempts", false, []error{nil, lost, lost, lost, lost}, []int{1, 1}, permit.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, q := newLink()
				attempts, done := 0, 0
				op := permit.Op[int]{Name: "Op", Reads: c.reads, Step: func(context.Context) (int, bool, error) {
					err := c.errs[attempts]
					if attempts++; err == nil {
						done++
					}
					return done, attempts < len(c.errs), err
				}}
				var results []int
				var last error
				for r, err := range Steps(t.Context(), l, op) {
					results, last = append(results, r), err
				}
				require.Equal(t, c.results, results)
				require.Equal(t, len(c.errs), attempts)
				if c.err == nil {
					require.NoError(t, last)
				} else {
					require.ErrorIs(t, last, c.err)
				}
				require.Equal(t, c.reads, q.touched == 0, "what only reads reclaims no tripwire")
			})
		})
	}
}

// TestResultOfACallThatIsNotMade checks that an operation whose next call is not made, because Redis is down, ends with what it
// has done.
func TestResultOfACallThatIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLink()
		made := 0
		var results []string
		var last error
		for r, err := range Steps(t.Context(), l, permit.Op[string]{Name: "Op", Step: func(context.Context) (string, bool, error) {
			made++
			return "done", made < 2, nil
		}}) {
			results, last = append(results, r), err
			refused := &retry.Error{Err: errors.New("down"), Outcome: retry.NotExecuted}
			l.Backend = backend{err: refused}
			l.Health().End(t.Context(), l.Health().Begin(l, outage.Traits{}), refused)
			l.Health().Await(nil, nil)
		}
		require.ErrorIs(t, last, permit.ErrUnavailable)
		require.Equal(t, []string{"done", "done"}, results)
		require.Equal(t, 1, made)
		close(l.System.Closed)
	})
}

// TestStepsThatAreLeft checks that no call is made after the last one that is wanted.
func TestStepsThatAreLeft(t *testing.T) {
	l, _ := newLink()
	made := 0
	for range Steps(t.Context(), l, permit.Op[int]{Step: func(context.Context) (int, bool, error) { made++; return made, true, nil }}) {
		break
	}
	require.Equal(t, 1, made)
	require.True(t, l.Health().Idle())
}

var _ outage.Server = (*Link)(nil)
