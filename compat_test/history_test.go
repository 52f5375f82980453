// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// requireAllAccepted fails the test unless the checker has accepted every history. One that took the checker too long
// is not accepted.
func (j judged) requireAllAccepted(t *testing.T) {
	t.Helper()
	for i, h := range j.histories {
		if j.verdicts[i] != porcupine.Ok {
			t.Log(h)
		}
	}
	require.Equal(t, map[porcupine.CheckResult]int{porcupine.Ok: len(j.histories)}, j.counts)
}

// TestHistory checks histories of callers of several clients, with replies lost, in which no grant expires.
func TestHistory(t *testing.T) {
	t.Parallel()
	historyPlan{n: redistest.Cases(120, 300), interval: time.Hour, share: 0.3, settle: (*history).settle, play: func(h *history, rng *rand.Rand, client int) {
		if rng.IntN(8) == 0 {
			h.read()
		} else {
			h.try(rng, client)
		}
	}}.run(t).requireAllAccepted(t)
}

// TestHistoryDoubled checks that a request that something between us and Redis sends twice takes its permits once.
// Each caller is its own client, because this does not hold for a call with several requests.
func TestHistoryDoubled(t *testing.T) {
	t.Parallel()
	historyPlan{n: redistest.Cases(60, 100), interval: time.Hour, share: 0.5, doubles: true, clients: historyCallers, settle: (*history).settle,
		play: (*history).try}.run(t).requireAllAccepted(t)
}

// TestHistoryExpires checks histories in which grants expire and callers wait.
func TestHistoryExpires(t *testing.T) {
	t.Parallel()
	plan := historyPlan{n: redistest.Cases(60, 150), interval: historyShort, share: 0.3, settle: (*history).settleShort}
	plan.play = func(h *history, rng *rand.Rand, client int) {
		switch rng.IntN(6) {
		case 0:
			h.read()
		case 1:
			h.acquire(rng, client)
		default:
			h.try(rng, client)
		}
	}
	judged := plan.run(t)
	judged.requireAllAccepted(t)
	turned := 0
	for _, h := range judged.histories {
		if h.told > h.rate.Permits {
			turned++
		}
	}
	t.Logf("in %d of them permits were granted again", turned)
	require.Greater(t, turned, len(judged.histories)/2)
}

// settle reads the one sum that the model knows for certain.
func (h *history) settle() { h.read() }

// settleShort reads at once, and again when everything must be free.
func (h *history) settleShort() {
	h.read()
	until := h.clock() + h.rate.Interval.Milliseconds() + 1
	eventually(callLimit, func() bool { return h.clock() > until })
	h.read()
}

// TestHistoryCancelled checks histories in which callers leave, while they wait and while their call is in flight.
// What such a caller was granted goes to another one, or back.
func TestHistoryCancelled(t *testing.T) {
	t.Parallel()
	plan := historyPlan{n: redistest.Cases(60, 150), interval: time.Hour, share: 0.3}
	plan.play = func(h *history, rng *rand.Rand, client int) {
		if rng.IntN(4) > 0 || h.leaving.Add(1) > historyLeavers {
			h.try(rng, client)
			return
		}
		permits := 1 + rng.Int64N(4)
		ctx, cancel := context.WithTimeout(h.Context(), time.Duration(rng.IntN(15_000))*time.Microsecond)
		defer cancel()
		call := h.now()
		err := h.limiters[client].Acquire(ctx, permits)
		switch ret := h.now(); {
		case err == nil:
			h.add(call, ret, historyAsk{kind: kindTake, permits: permits}, historyAnswer{granted: true})
		case errors.Is(err, context.DeadlineExceeded):
			h.leave(call, permits)
		default:
			h.failed(err)
		}
	}
	plan.settle = func(h *history) {
		eventually(callLimit, func() bool {
			free, err := h.mine.AvailablePermits(h.Context())
			return err == nil && free == h.rate.Permits-h.told
		})
		h.read()
	}
	judged := plan.run(t)
	judged.requireAllAccepted(t)
	var leavers int
	var kept int64
	for _, h := range judged.histories {
		leavers += h.leavers
		o := h.operations[len(h.operations)-1].Output.(historyAnswer)
		kept += h.rate.Permits - h.told - o.value
	}
	require.Greater(t, leavers, len(judged.histories))
	t.Logf("%d callers left; %d permits stayed with them", leavers, kept)
	require.Zero(t, kept, "permits that callers kept who had left")
}
