// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A closed is the state of a limiter that rejects all requests.
type closed struct{}

func (closed) Take(Demand, Epoch) Decision { return Decision{Wait: 1} }

// TestCachedRejectionsAreBounded tests that the memory of rejections is bounded, however many keys there are and however long their names, that
// the last one is in it, and that those which are too old are dropped first.
func TestCachedRejectionsAreBounded(t *testing.T) {
	redistest.NoServer(t)
	now := time.Now()
	c := Limiter{Clock: func() time.Time { return now }}
	learn := func(slot string) (known bool) {
		f := Flight{Runs: []Run{{Demand{N: 1, Spend: true}, []*Request{{Demand: Demand{N: 1, Spend: true}, Slot: slot}}}}, Requests: 1}
		c.Learn(&f, true, Rejection{State: closed{}, Now: now.UnixMicro(), Sent: now})
		_, _, known = c.Rejected(slot, Demand{N: 1})
		return known
	}
	kept := func() (n int) {
		c.known.rejections.Range(func(any, any) bool { n++; return true })
		require.EqualValues(t, n, c.known.count.Load())
		return n
	}
	for i := range 100_000 {
		require.True(t, learn(fmt.Sprint(i)), "the latest is known")
		if i%1000 == 0 {
			require.LessOrEqual(t, kept(), mostKnown)
		}
	}
	require.Greater(t, kept(), mostKnown/3)
	require.False(t, learn(strings.Repeat("x", longestKnown+1)))

	for i := range mostKnown { // some are replaced, and some dropped
		learn(fmt.Sprint(i))
	}
	now = now.Add(KnownFor)
	for i := 0; kept() < mostKnown; i++ {
		learn(fmt.Sprint("later ", i))
	}
	learn("one more")
	c.known.rejections.Range(func(key, r any) bool {
		require.Equal(t, now, r.(*Rejection).Sent, "%v is too old", key)
		return true
	})
}
