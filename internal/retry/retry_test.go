// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAttempts(t *testing.T) {
	for _, c := range []struct {
		name     string
		outcomes []Outcome
		pause    time.Duration
		again    bool
		replay   bool
	}{
		{"the first of four", []Outcome{NotExecuted}, 0, true, false},
		{"the third", []Outcome{NotExecuted, NotExecuted, NotExecuted}, 0, true, false},
		{"the fourth", []Outcome{Unknown, Unknown, Unknown, Unknown}, 0, false, true},
		{"it ran and failed", []Outcome{Executed}, 0, false, false},
		{"unknown once", []Outcome{Unknown, NotExecuted}, 0, true, true},
		{"just in time", []Outcome{Unknown}, maxTrying, true, true},
		{"the second is too late", []Outcome{Unknown, Unknown}, maxTrying + 1, false, true},
		{"the first alone, in a process that may have stood still", []Outcome{Unknown}, maxTrying + 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := Attempts{Begin: time.Now()}
				time.Sleep(c.pause)
				var again bool
				for _, what := range c.outcomes {
					again = tries.Failed(&Error{Outcome: what})
				}
				require.Equal(t, c.again, again)
				require.Equal(t, c.replay, tries.Replay)
			})
		})
	}
}

// The first attempt that broke with others is not counted, since one of these may have broken it each time.
func TestAttemptThatIsShared(t *testing.T) {
	tries := Attempts{Begin: time.Now()}
	shared := &Error{Outcome: Unknown, Shared: true}
	require.True(t, tries.Failed(shared))
	require.True(t, tries.Replay)
	for range MaxAttempts - 1 {
		require.True(t, tries.Failed(shared))
	}
	require.False(t, tries.Failed(shared))
	require.Positive(t, backoff(0))
}

func TestDo(t *testing.T) {
	plain := errors.New("plain")
	lost, unsent := &Error{Err: plain, Outcome: Unknown}, &Error{Err: plain, Outcome: NotExecuted}
	for _, c := range []struct {
		name    string
		errs    []error
		replays []bool
	}{
		{"at once", []error{nil}, []bool{false}},
		{"the third time", []error{unsent, lost, nil}, []bool{false, false, true}},
		{"never", []error{lost, lost, lost, lost}, []bool{false, true, true, true}},
		{"it ran and failed", []error{&Error{Err: plain}}, []bool{false}},
		{"not to be made again", []error{&Error{Err: plain, Outcome: NotExecuted, Final: true}}, []bool{false}},
		{"an error of another kind", []error{unsent, plain}, []bool{false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var replays []bool
				err := Do(nil, nil, func(replay bool) error {
					replays = append(replays, replay)
					return c.errs[len(replays)-1]
				})
				require.Equal(t, c.replays, replays)
				require.Equal(t, c.errs[len(c.errs)-1], err)
				if err != nil {
					require.ErrorIs(t, err, plain)
				}
			})
		})
	}
}

// The pauses are 10, 40 and 160 ms, each ± half, and end when either channel is closed.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := Attempts{Begin: time.Now()}
		for _, d := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond, 640 * time.Millisecond} {
			tries.Failed(&Error{Outcome: Unknown})
			before := time.Now()
			tries.Pause(nil, nil)
			took := time.Since(before)
			require.GreaterOrEqual(t, took, d/2)
			require.Less(t, took, d+d/2)
		}
		closed := make(chan struct{})
		close(closed)
		before := time.Now()
		tries.Pause(closed, nil)
		tries.Pause(nil, closed)
		require.Zero(t, time.Since(before))
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		require.NoError(t, Sleep(ctx, 2*time.Second))
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.ErrorIs(t, Sleep(ctx, 2*time.Second), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(begin), "it ends with the context")
	})
}
