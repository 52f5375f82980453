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

func TestTally(t *testing.T) {
	a, b := memberAt("a", 1_000, 3), memberAt("b", 2_000, 2)
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		responses                  []exchange
		most, counts, err, failure string
	}{
		"within the limit": {[]exchange{
			granted(2, b, a), granted(2, a), granted(1, a), // one member may be two grants, and replies may arrive out of order
			granted(5, memberAt("c", 12_000, 5)),
			{Status: http.StatusTooManyRequests, Answer: answer{Num: 4}}, {Status: http.StatusBadRequest, Answer: answer{Num: 9}},
		}, "5 (limit 5)", "4 granted (10 permits), 1 rejected, 1 bad", "", ""},
		"above the limit": {[]exchange{granted(5, memberAt("a", 1_000, 5)), granted(1, memberAt("b", 10_999, 1))},
			"6 (limit 5)", "2 granted (6 permits), 0 rejected, 0 bad", "6 permits in one window of 10s, where 5 are allowed", ""},
		"a grant that Redis does not have": {[]exchange{granted(2, memberAt("a", 1_000, 2)), granted(2, memberAt("a", 1_000, 2))},
			"2 (limit 5)", "2 granted (4 permits), 0 rejected, 0 bad", "4 permits were answered with 200, but Redis recorded 2", ""},
		"the first failure is kept": {[]exchange{{Client: "ann", Err: refused}, {Client: "bob", Status: http.StatusServiceUnavailable}},
			"0 (limit 5)", "0 granted (0 permits), 0 rejected, 0 bad, 2 without Redis or an answer", "", "ann got no answer: connection refused"},
	} {
		tl := newTally(10 * time.Second)
		for _, e := range c.responses {
			tl.add(e)
		}
		s := tl.end(5)
		require.Equal(t, "most in any 10s window: "+c.most, s.String(), name)
		require.Equal(t, c.counts, s.counts(), name)
		for want, err := range map[string]error{c.err: s.Err, c.failure: s.Failed} {
			if want == "" {
				continue
			}
			require.ErrorContains(t, err, want, name)
		}
		require.Equal(t, []bool{c.err == "", c.failure == ""}, []bool{s.Err == nil, s.Failed == nil}, name)
	}
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
