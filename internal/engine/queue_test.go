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
		share := &outage.Policy{Kind: outage.LocalShare}
		open := &outage.Policy{Kind: outage.FailOpen}
		newRequest := func() *request {
			seq += 2
			r := &request{seq: seq, policy: rapid.SampledFrom([]*outage.Policy{nil, share, open}).Draw(rt, "policy")}
			if s := rapid.IntRange(0, 20).Draw(rt, "deadline"); s > 0 {
				r.deadline = epoch.Add(time.Duration(s) * time.Second)
			}
			return r
		}
		watch := func(r *request) {
			if !r.deadline.IsZero() {
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
				r.seq = uint64(rapid.IntRange(0, int(seq)/2).Draw(rt, "seq"))*2 + 1
				if slices.ContainsFunc(model, func(o *request) bool { return o.seq == r.seq }) {
					return
				}
				q.insert(r)
				watch(r)
				i := len(model)
				for i > 0 && model[i-1].seq > r.seq {
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
				var there, back []uint64
				for r := q.first; r != nil; r = r.next {
					there = append(there, r.seq)
				}
				for r := q.last; r != nil; r = r.prev {
					back = append(back, r.seq)
				}
				slices.Reverse(back)
				var want []uint64
				policies, shares, earliest := 0, 0, time.Time{}
				for _, r := range model {
					want = append(want, r.seq)
					if r.policy != nil {
						policies++
					}
					if r.policy == share {
						shares++
					}
					if !r.deadline.IsZero() && (earliest.IsZero() || r.deadline.Before(earliest)) {
						earliest = r.deadline
					}
				}
				require.Equal(rt, want, there)
				require.Equal(rt, want, back)
				require.Equal(rt, []int{len(model), policies, shares}, []int{q.n, q.policies, q.shares})
				if r := q.earliest(); r != nil {
					require.Equal(rt, earliest, r.deadline)
				} else {
					require.Zero(rt, earliest)
				}
			},
		})
	})
}
