// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHealth checks what Allow returns in each state of a Health: up, down, at the instant of a probe, and up
// again.
func TestHealth(t *testing.T) {
	const (
		pass   = "pass"
		reject = "reject"
		probe  = "probe"
	)
	var (
		h     Health
		first = errors.New("first")
		last  = errors.New("last")
	)
	// may returns what Allow says, and checks it against the other methods.
	may := func(t *testing.T) string {
		down := h.Down()
		c := new(Call)
		next, over, err := h.Allow(c)
		h.End(c)
		_, cause := h.Since()
		switch {
		case err == nil && next.IsZero():
			require.False(t, down)
			require.Nil(t, over)
			require.NoError(t, cause)
			return pass
		case err == nil:
			require.True(t, down)
			require.True(t, next.After(time.Now()), "the next one's")
			return probe
		}
		require.True(t, down)
		require.Equal(t, cause, err)
		require.NotNil(t, over)
		require.True(t, next.After(time.Now()))
		return reject
	}
	down := func(err error, news bool) func(t *testing.T) {
		return func(t *testing.T) { require.Equal(t, news, h.MarkDown(time.Now(), err, false)) }
	}
	tryProbe := func() bool {
		c := new(Call)
		defer h.End(c)
		return h.TryProbe(c)
	}
	var since time.Time
	synctest.Test(t, func(t *testing.T) {
		for i, step := range []struct {
			do   func(t *testing.T)
			wait time.Duration
			want []string
		}{
			{func(*testing.T) {}, 0, []string{pass, pass}},
			{func(t *testing.T) { ended, _, _ := h.Replied(nil, time.Now(), Ran); require.False(t, ended) }, 0, []string{pass}},
			{func(t *testing.T) { require.False(t, tryProbe(), "it is there") }, 0, []string{pass}},
			{func(t *testing.T) { down(first, true)(t); since = time.Now() }, 0, []string{reject, reject}},
			{func(t *testing.T) { require.False(t, tryProbe(), "not yet") }, probeEvery - 1, []string{reject}},
			{func(*testing.T) {}, probeEvery/4 + 1, []string{probe, reject, reject}},
			{down(last, false), probeEvery - 1, []string{reject}},
			{func(t *testing.T) { h.CountGrant(); h.CountGrant() }, probeEvery/4 + 1, []string{probe, reject}},
			{func(*testing.T) {}, 5 * probeEvery, []string{probe, reject}},
			{func(t *testing.T) {
				time.Sleep(5 * probeEvery)
				require.True(t, tryProbe())
				require.False(t, tryProbe())
				_, _, isDown := h.Next()
				require.True(t, isDown)
			}, 0, []string{reject}},
			{func(t *testing.T) {
				begun, err := h.Since()
				require.Equal(t, since, begun, "the first time")
				require.Equal(t, last, err, "the last reason")
				_, over, _ := h.Next()
				ended, lasted, granted := h.Replied(nil, time.Now(), Ran)
				require.True(t, ended)
				require.Equal(t, time.Since(since), lasted)
				require.EqualValues(t, 2, granted)
				<-over
				ended, _, _ = h.Replied(nil, time.Now(), Ran)
				require.False(t, ended)
			}, 0, []string{pass}},
			{func(t *testing.T) {
				down(first, true)(t)
				begun, _ := h.Since()
				require.Equal(t, time.Now(), begun)
				_, _, granted := h.Replied(nil, time.Now(), Ran)
				require.Zero(t, granted, "those of the outage before do not count")
			}, 0, []string{pass}},
		} {
			step.do(t)
			time.Sleep(step.wait)
			for j, want := range step.want {
				require.Equal(t, want, may(t), "step %d, %d", i, j)
			}
		}
	})
}

// TestProbePause checks that probes are about one second apart, and that the pauses vary so that many processes do
// not probe at the same instant.
func TestProbePause(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := ProbePause()
		require.True(t, probeEvery <= d && d < probeEvery*5/4, "%v", d)
		seen[d] = true
	}
	require.Greater(t, len(seen), 900)
}
