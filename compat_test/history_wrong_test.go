// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// requireRejected checks that the checker accepts none of the histories in which something went wrong.
func (j judged) requireRejected(t *testing.T) {
	t.Helper()
	wrong := 0
	for i, h := range j.histories {
		if h.faults.Load() > 0 {
			wrong++
			require.Equal(t, porcupine.Illegal, j.verdicts[i], "history %d", i)
		} else {
			require.Equal(t, porcupine.Ok, j.verdicts[i], "history %d", i)
		}
	}
	require.Greater(t, wrong, len(j.histories)/2)
	t.Logf("%d of %d histories have something wrong, and are rejected", wrong, len(j.histories))
}

// TestHistoryOfRedisson checks that Redisson's script, which go-redis sends again like any command, loses permits,
// and that its histories are rejected. With no reply lost they are accepted, so the lost replies are what the checker
// finds.
func TestHistoryOfRedisson(t *testing.T) {
	t.Parallel()
	plan := historyPlan{n: 100, interval: time.Hour, jar: newJar(t, newestListed()), settle: (*history).settle}
	plan.play = func(h *history, rng *rand.Rand, client int) {
		permits, bits := 1+rng.Int64N(4), rng.Uint64()
		h.take(client, permits, func() (bool, time.Time, error) {
			granted, err := plan.jar.tryAcquire(h.Context(), h.through, h.mine.Name(), "history", permits, bits)
			return granted, time.Time{}, err
		})
	}
	plan.run(t).requireAllAccepted(t)
	plan.share = 0.3
	judged := plan.run(t)
	leaked := 0
	for i, h := range judged.histories {
		if h.operations[len(h.operations)-1].Output.(historyAnswer).value < h.rate.Permits-h.told {
			leaked++
			require.Equal(t, porcupine.Illegal, judged.verdicts[i], "history %d", i)
		}
	}
	t.Logf("%d of %d histories have lost permits, and are rejected", leaked, plan.n)
	require.Greater(t, leaked, plan.n/2)
}

// TestHistoryOfWrongLimiters checks that limiters are rejected that take a request sent again for a new one, or that tell two
// callers of one grant, also where the model has to count by instants.
func TestHistoryOfWrongLimiters(t *testing.T) {
	for name, c := range map[string]struct {
		interval time.Duration
		play     func(h *history, rng *rand.Rand, client int)
	}{
		"grants twice":                   {time.Hour, (*history).grantTwice},
		"tells twice":                    {time.Hour, func(h *history, rng *rand.Rand, client int) { h.tellTwice(rng, client, 4) }},
		"tells twice, and grants expire": {time.Minute, func(h *history, rng *rand.Rand, client int) { h.tellTwice(rng, client, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			historyPlan{n: 60, interval: c.interval, settle: (*history).settle, play: c.play}.run(t).requireRejected(t)
		})
	}
}

// grantTwice grants one request in five twice, and tells of one grant.
func (h *history) grantTwice(rng *rand.Rand, client int) {
	permits := 1 + rng.Int64N(4)
	h.take(client, permits, func() (bool, time.Time, error) {
		if rng.IntN(5) == 0 {
			r, err := h.limiters[client].Allow(h.Context(), permits)
			if err != nil {
				return false, time.Time{}, err
			}
			if r.Granted {
				h.faults.Add(1)
			}
		}
		r, err := h.limiters[client].Allow(h.Context(), permits)
		return r.Granted, r.Time, err
	})
}

// tellTwice reports one rejected request in every so many as granted.
func (h *history) tellTwice(rng *rand.Rand, client, one int) {
	permits := 1 + rng.Int64N(4)
	h.take(client, permits, func() (bool, time.Time, error) {
		r, err := h.limiters[client].Allow(h.Context(), permits)
		if err == nil && !r.Granted && rng.IntN(one) == 0 {
			h.faults.Add(1)
			r.Granted = true
		}
		return r.Granted, r.Time, err
	})
}
