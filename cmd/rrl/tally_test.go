// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// granted returns a 200 for num permits whose state has these members, named by their bytes.
func granted(num int64, members ...member) exchange {
	return exchange{Client: "x", Status: http.StatusOK,
		Answer: answer{Num: num, Granted: true, Redis: &redisKeys{Permits: permitsKey{Members: members}}}}
}

func memberAt(bytes string, ms int64, permits uint32) member {
	return member{Bytes: bytes, GrantedMS: ms, Permits: permits}
}

func TestTallyWithinTheLimit(t *testing.T) {
	tl := newTally(10 * time.Second)
	a, b := memberAt("a", 1_000, 3), memberAt("b", 2_000, 2)
	tl.add(granted(2, b, a)) // one member may be two grants, and replies may arrive out of order
	tl.add(granted(2, a))
	tl.add(granted(1, a))
	tl.add(granted(5, memberAt("c", 12_000, 5)))
	tl.add(exchange{Status: http.StatusTooManyRequests, Answer: answer{Num: 4}})
	tl.add(exchange{Status: http.StatusBadRequest, Answer: answer{Num: 9}})
	s := tl.end(5)
	require.NoError(t, s.Err)
	require.NoError(t, s.Failed)
	require.Equal(t, "most in any 10s window: 5 (limit 5)", s.String())
	require.EqualValues(t, 10, s.Granted)
	require.Equal(t, "4 granted (10 permits), 1 rejected, 1 bad", s.counts())
}

func TestTallyAboveTheLimit(t *testing.T) {
	tl := newTally(10 * time.Second)
	tl.add(granted(5, memberAt("a", 1_000, 5)))
	tl.add(granted(1, memberAt("b", 10_999, 1)))
	s := tl.end(5)
	require.ErrorContains(t, s.Err, "6 permits in one window of 10s, where 5 are allowed")
	require.Equal(t, "most in any 10s window: 6 (limit 5)", s.String())
}

// TestTallyForgetsMembersNotCounts checks that a grant that was counted still counts after it leaves the memory, and
// is not counted again when it is still in the set much later.
func TestTallyForgetsMembersNotCounts(t *testing.T) {
	tl := newTally(time.Second)
	old := memberAt("old", 0, 6)
	tl.add(granted(6, old))
	for i := range int64(100) {
		tl.add(granted(1, memberAt(fmt.Sprint(i), 1000+i*1000, 1), old))
	}
	require.LessOrEqual(t, len(tl.grants), 5)
	s := tl.end(6)
	require.NoError(t, s.Err)
	require.EqualValues(t, 106, tl.recorded)
	require.EqualValues(t, 6, s.Most)
}

func TestTallyMissesAGrant(t *testing.T) {
	tl := newTally(10 * time.Second)
	tl.add(granted(2, memberAt("a", 1_000, 2)))
	tl.add(granted(2, memberAt("a", 1_000, 2)))
	require.ErrorContains(t, tl.end(5).Err, "4 permits were answered with 200, but Redis recorded 2")
}

func TestTallyRemembersTheFirstFailure(t *testing.T) {
	tl := newTally(10 * time.Second)
	cause := errors.New("connection refused")
	tl.add(exchange{Client: "ann", Err: cause})
	tl.add(exchange{Client: "bob", Status: http.StatusServiceUnavailable})
	s := tl.end(5)
	require.NoError(t, s.Err)
	require.ErrorIs(t, s.Failed, cause)
	require.ErrorContains(t, s.Failed, "ann got no answer")
	require.Contains(t, s.counts(), "2 without Redis or an answer")
}
