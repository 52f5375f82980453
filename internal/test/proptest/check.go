// SPDX-License-Identifier: Apache-2.0

// Package proptest checks properties in a bubble of virtual time, and has random numbers that a run can draw again. Their
// seed is rapid's: the flag -rapid.seed, or RAPID_SEED in the environment, as tools/test-lanes.sh sets it.
package proptest

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Check is rapid.Check with a new seed each time if none is set. In a bubble the clock always starts at the same instant, so
// rapid would otherwise make the same choices forever. A failure prints the seed to replay.
func Check(t testing.TB, f func(rt *rapid.T)) {
	t.Helper()
	if seed() == 0 {
		setSeed(rand.Uint64())
		defer setSeed(0)
	}
	rapid.Check(noDeadline{t}, f)
}

// Until calls [Check] until done returns true, with other draws each time, also if a seed is set: then the first call
// has this seed.
func Until(t testing.TB, done func() bool, f func(rt *rapid.T)) {
	t.Helper()
	first := seed()
	defer setSeed(first)
	for next := rand.New(rand.NewPCG(first, 0)); !done(); {
		Check(t, f)
		if first != 0 {
			setSeed(next.Uint64())
		}
	}
}

// Rand returns random numbers of the seed that is set, or of a new one. If t fails, it prints the flag that draws them again.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	s := seed()
	if s == 0 {
		s = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to draw the same again: -rapid.seed=%d", s)
		}
	})
	return rand.New(rand.NewPCG(s, 0))
}

func seed() uint64 {
	n, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func setSeed(n uint64) {
	if err := flag.Set("rapid.seed", strconv.FormatUint(n, 10)); err != nil {
		panic(err)
	}
}

// noDeadline hides Deadline, which must not be called inside a bubble.
type noDeadline struct{ testing.TB }
