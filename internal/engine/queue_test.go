// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestQueue compares a queue with a slice.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var (
			q     queue
			model []*request
			seq   uint64
			epoch = time.Now()
		)
		share := &outage.Policy{Kind: outage.LocalQuota}
		open := &outage.Policy{Kind: outage.FailOpen}
		newRequest := func() *request {
			seq += 2
			r := &request{came: epoch.Add(time.Duration(seq)), want: Request{Wait: true, Policy: rapid.SampledFrom([]*outage.Policy{nil, share, open}).Draw(rt, "policy")}}
			if s := rapid.IntRange(0, 20).Draw(rt, "deadline"); s > 0 {
				r.want.Timeout = time.Duration(s) * time.Second
			}
			return r
		}
		watch := func(r *request) {
			if r.hasDeadline() {
				q.watch(r)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) {
				r := newRequest()
				q.push(r)
				watch(r)
				model = append(model, r)
			},
			"insert": func(*rapid.T) {
				r := newRequest()
				r.came = epoch.Add(time.Duration(rapid.IntRange(0, int(seq)/2).Draw(rt, "seq"))*2 + 1)
				if slices.ContainsFunc(model, func(o *request) bool { return o.came.Equal(r.came) }) {
					return
				}
				q.insert(r)
				watch(r)
				i := len(model)
				for i > 0 && model[i-1].came.After(r.came) {
					i--
				}
				model = slices.Insert(model, i, r)
			},
			"unqueue": func(rt *rapid.T) {
				if len(model) == 0 {
					return
				}
				i := rapid.IntRange(0, len(model)-1).Draw(rt, "place")
				model[i].unqueueLocked()
				model[i].unqueueLocked() // does nothing
				model = slices.Delete(model, i, i+1)
			},
			"": func(rt *rapid.T) {
				var there, back []time.Time
				for r := q.first; r != nil; r = r.next {
					there = append(there, r.came)
				}
				for r := q.last; r != nil; r = r.prev {
					back = append(back, r.came)
				}
				slices.Reverse(back)
				var want []time.Time
				policies, shares, earliest := 0, 0, time.Time{}
				for _, r := range model {
					want = append(want, r.came)
					if r.want.Policy != nil {
						policies++
					}
					if r.want.Policy == share {
						shares++
					}
					if r.hasDeadline() && (earliest.IsZero() || r.deadline().Before(earliest)) {
						earliest = r.deadline()
					}
				}
				require.Equal(rt, want, there)
				require.Equal(rt, want, back)
				require.Equal(rt, []int{len(model), policies, shares}, []int{q.n, q.policies, q.quotas})
				if r := q.earliest(); r != nil {
					require.Equal(rt, earliest, r.deadline())
				} else {
					require.Zero(rt, earliest)
				}
			},
		})
	})
}

// TestQueueKeepsTheFirstInFront checks that a request which leaves the front, and is inserted again, is the first again, also
// if others came at the same instant. Two of them would else take turns without end.
func TestQueueKeepsTheFirstInFront(t *testing.T) {
	var q queue
	a, b := &request{came: time.Now()}, &request{}
	b.came = a.came
	q.insert(b)
	q.insert(a)
	for range 2 {
		first := q.first
		first.unqueueLocked()
		q.insert(first)
		require.Same(t, first, q.first)
	}
}
