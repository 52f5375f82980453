// SPDX-License-Identifier: Apache-2.0

// Package proptest checks properties in a bubble of virtual time.
package proptest

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Check is rapid.Check with a new seed each time. In a bubble the clock always starts at the same instant, so rapid would
// otherwise make the same choices forever. A failure prints the seed to replay.
func Check(t testing.TB, f func(rt *rapid.T)) {
	t.Helper()
	seed := flag.Lookup("rapid.seed")
	if seed.Value.String() == "0" {
		if err := seed.Value.Set(strconv.FormatUint(rand.Uint64(), 10)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = seed.Value.Set("0") }()
	}
	rapid.Check(noDeadline{t}, f)
}

// noDeadline hides Deadline, which must not be called inside a bubble.
type noDeadline struct{ testing.TB }
