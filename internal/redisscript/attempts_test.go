package redisscript

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestAttempts(t *testing.T) {
	for _, c := range []struct {
		name   string
		errs   []error
		pause  time.Duration
		again  bool
		replay bool
	}{
		{"the first of four", []error{redis.ErrPoolTimeout}, 0, true, false},
		{"the third", []error{redis.ErrPoolTimeout, redis.ErrPoolTimeout, redis.ErrPoolTimeout}, 0, true, false},
		{"the fourth", []error{io.EOF, io.EOF, io.EOF, io.EOF}, 0, false, true},
		{"it ran and failed", []error{redisError("WRONGTYPE")}, 0, false, false},
		{"unknown once", []error{io.EOF, redis.ErrPoolTimeout}, 0, true, true},
		{"just in time", []error{io.EOF}, maxSending, true, true},
		{"too late", []error{io.EOF}, maxSending + 1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := Attempts{Begin: time.Now()}
				time.Sleep(c.pause)
				var again bool
				for _, err := range c.errs {
					var what Outcome
					what, again = tries.Failed(err)
					require.Equal(t, Classify(err), what)
				}
				require.Equal(t, c.again, again)
				require.Equal(t, c.replay, tries.Replay)
			})
		})
	}
}

// The pauses are 10, 40 and 160 ms, each ± half, and end with either channel.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := Attempts{Begin: time.Now()}
		for _, d := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond, 640 * time.Millisecond} {
			tries.Failed(errors.New("lost"))
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
