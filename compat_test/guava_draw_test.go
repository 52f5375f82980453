// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/goredisson/ratelimiter/limit"
)

// The random plays against Guava are drawn while our local limiter runs, so that gaps and timeouts fall on the very
// microsecond at which a reply changes, and on the ones before and after it.

var (
	guavaRates = []float64{
		1, 2, 3, 5, 6, 7, 10, 13, 997, 1000, 99_999, 100_000,
		1.0 / 3, 2.0 / 3, 1.0 / 7, 0.1, 0.3, 0.001, math.Pi, 1.1, 12_345.678, 99_999.9,
	}
	guavaSpans = []time.Duration{ // lengths of bursts and warm-ups
		time.Second, time.Second, time.Second, 4 * time.Second, time.Minute, time.Hour, time.Microsecond, 7 * time.Microsecond,
		time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, 333_333 * time.Microsecond, 1118 * time.Millisecond,
	}
	guavaColds = []float64{0, 3, 3, 1.0001, 1.1, 1.5, 2, 7, 10, 1000}
)

const (
	guavaLength = 60                   // requests in a play
	guavaWaits  = 10 * time.Minute     // the longest wait that is slept
	guavaLonger = 300 * 24 * time.Hour // the largest debt: our limiters reserve a year ahead at most
)

func drawn[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// A guavaDraw is a play that is being drawn.
type guavaDraw struct {
	rng    *rand.Rand
	permit time.Duration // the time of one permit at the rate
	span   time.Duration // the length of the burst or the warm-up
	most   int64         // the most permits of one call
}

// drawGuava draws the numbers of a limiter, and then requests, each after our reply to the one before. If idle is
// set, a bursty limiter begins with all that it can store, as our shared one does.
func drawGuava(ctx context.Context, rng *rand.Rand, idle bool) (guavaPlay, error) {
	rate := math.Exp(math.Log(0.001) + rng.Float64()*math.Log(1e5/0.001))
	if rng.IntN(3) > 0 {
		rate = drawn(rng, guavaRates)
	}
	d := guavaDraw{rng: rng, permit: time.Duration(1e9 / rate), span: drawn(rng, guavaSpans)}
	if rng.IntN(3) == 0 {
		d.span = d.whole(time.Duration(math.Exp(rng.Float64()*math.Log(1e10))) * time.Microsecond)
	}
	var p guavaPlay
	if rng.IntN(2) == 0 {
		p.algorithm = limit.SmoothBursty{PermitsPerSecond: rate, MaxBurst: d.span}
	} else {
		cold := drawn(rng, guavaColds)
		if rng.IntN(3) == 0 {
			cold = 1 + math.Exp(rng.Float64()*8-4)
		}
		p.algorithm = limit.SmoothWarmingUp{PermitsPerSecond: rate, Warmup: d.span, ColdFactor: cold}
	}
	d.most = min(limit.MaxPerCall(p.algorithm), math.MaxInt32) // Guava's permits are an int
	l, err := limit.NewLocal(p.algorithm)
	if err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, guavaNever)
	defer cancel()
	for i := range guavaLength {
		peek, err := l.Peek(ctx, 1)
		if err != nil {
			return p, err
		}
		a := d.ask(peek.Wait)
		if i == 0 && idle {
			a.gap = 2*d.span + time.Second
		}
		answer, err := a.ours(ctx, l)
		if err != nil {
			return p, err
		}
		p.asks, p.local = append(p.asks, a), append(p.local, answer)
	}
	return p, nil
}

// ask draws a request. turn is the time until one could be granted at once.
func (d guavaDraw) ask(turn time.Duration) guavaAsk {
	a := guavaAsk{gap: d.gap(turn), call: drawn(d.rng, []string{guavaAcquire, guavaTryAcquire, guavaReserve, guavaTryReserve})}
	left := max(0, turn-a.gap)
	if left > guavaWaits {
		// Whoever waits looks at the limiter once a second, also in virtual time.
		a.call = map[string]string{guavaAcquire: guavaReserve, guavaTryAcquire: guavaTryReserve, guavaReserve: guavaReserve, guavaTryReserve: guavaTryReserve}[a.call]
	}
	a.permits = d.permits(guavaLonger - left)
	switch d.rng.IntN(9) {
	case 0, 1:
	case 2:
		a.timeout = -time.Microsecond
	case 3:
		a.timeout = left - time.Microsecond
	case 4:
		a.timeout = left
	case 5:
		a.timeout = left + time.Microsecond
	case 6:
		a.timeout = d.below(2*left + d.permit)
	case 7:
		a.timeout = d.below(d.span)
	case 8:
		a.timeout = guavaPatience
	}
	return a
}

func (d guavaDraw) gap(turn time.Duration) time.Duration {
	switch d.rng.IntN(12) {
	case 0:
		return time.Microsecond
	case 1:
		return max(0, turn-time.Microsecond)
	case 2:
		return turn
	case 3:
		return turn + time.Microsecond
	case 4:
		return turn + d.whole(d.permit)
	case 5:
		return turn + d.below(3*d.permit)
	case 6:
		return turn + d.below(d.span)
	case 7:
		return turn + d.below(2*d.span)
	case 8:
		return d.whole(turn/2) + d.below(time.Second)
	}
	return 0
}

// permits draws the permits of a request: one, a few, about as many as can be stored, or many, sometimes so many that
// the next request waits for weeks.
func (d guavaDraw) permits(debt time.Duration) int64 {
	stored := int64(d.span/d.permit) + 1
	n := int64(1)
	switch d.rng.IntN(20) {
	case 0, 1, 2, 3:
		n = 1 + d.rng.Int64N(5)
	case 4, 5, 6:
		n = 1 + d.rng.Int64N(stored)
	case 7, 8:
		n = stored + d.rng.Int64N(3)
	case 9:
		n = 1 + d.rng.Int64N(3*stored)
	case 10:
		n = 1 + d.rng.Int64N(int64(time.Hour/d.permit)+1)
	case 11:
		if d.rng.IntN(8) == 0 {
			n = d.most
		}
	}
	// All that is stored takes a warm-up and a half at most.
	if float64(n)*float64(d.permit) > float64(debt-2*d.span) {
		n = 1
	}
	return min(n, d.most)
}

// whole and below return d in whole microseconds.
func (guavaDraw) whole(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }

func (d guavaDraw) below(limit time.Duration) time.Duration {
	return time.Duration(d.rng.Int64N(limit.Microseconds()+1)) * time.Microsecond
}
