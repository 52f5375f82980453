// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxSum is how many members Complete reads: 100,000, and some that tell that callers wait.
	maxSum = 101_000
	// overlap is how many members Complete reads twice, so that it misses none when as many newer ones go meanwhile.
	overlap = 20
	// rounds is how often Complete reads what was granted while it read.
	rounds = 10
)

// before reports whether m comes before other in the set.
func (m Member) before(other Member) bool {
	return m.Score < other.Score || m.Score == other.Score && m.Raw < other.Raw
}

// Complete reads the members of a large set that Read has left out, in steps of 500, and reports whether st is Whole
// now. Meanwhile others may write. At last it reads the value, and the oldest and the newest members, at one instant, which is
// st.Time then: what was granted or has expired since the first step is as it is at that instant. What lies between may be older,
// by [State.Took] at most, which matters if somebody settles or cancels grants of that age. A set of more than 100,000 members, and one
// that grows faster than it can be read, stays as it is.
func (s *Survey) Complete(ctx context.Context, st *State) (bool, error) {
	if st.Whole || st.Count > maxSum || !st.OneInstant {
		return st.Whole, nil
	}
	rdb, err := s.node(ctx, st.Name)
	if err != nil {
		return false, err
	}
	held, newest := slices.Clone(st.Members[:part]), st.Members[part:]
	for range rounds {
		between, err := st.between(ctx, rdb, held[len(held)-1], newest[0])
		if err != nil {
			return false, err
		}
		held = append(append(held, between...), newest...)
		next, err := s.Read(ctx, st.Name, st.ClientID)
		if err != nil {
			return false, err
		}
		if next.Whole || next.WrongType() != nil || next.Count > maxSum {
			*st = *next
			return st.Whole, nil
		}
		oldest := next.Members[part-1]
		if newest = next.Members[part:]; held[len(held)-1].before(newest[0]) {
			continue // there are more new ones than were read
		}
		held = slices.DeleteFunc(held, func(m Member) bool { return !oldest.before(m) || !m.before(newest[0]) })
		next.Members = slices.Concat(next.Members[:part], held, newest)
		next.Whole, next.Took = true, max(time.Microsecond, next.Time.Sub(st.Time))
		*st = *next
		return true, nil
	}
	return false, nil
}

// between returns the members between two others, the oldest first. It reads from the newest on, so that it meets all of
// them while new ones come and the oldest go.
func (st *State) between(ctx context.Context, rdb redis.UniversalClient, from, to Member) (list []Member, err error) {
	for rank := int64(part); ; rank += part - overlap {
		zs, err := rdb.ZRevRangeWithScores(ctx, st.Keys[2], rank-overlap, rank-overlap+part-1).Result()
		if err != nil {
			return nil, err
		}
		for _, m := range membersOf(zs) {
			if !from.before(m) {
				slices.Reverse(list)
				return list, nil
			}
			if m.before(to) {
				list, to = append(list, m), m
			}
		}
		if len(zs) < part || len(list) > maxSum {
			slices.Reverse(list)
			return list, nil
		}
	}
}

// Off returns by how many permits value and members differ from the rate, which is more than 0 if there are too many. It
// reports false if that is not known.
func (st *State) Off() (int64, bool) {
	value, ok := st.ValueNumber()
	sum, _, whole := st.Sum()
	return value + sum - st.Rate.Permits, ok && whole && st.Problem == nil
}

// Bounds returns what Off may have been at st.Time at least and at most, because of members that were changed while it was read.
// Those are found by a later reading. A state that was read at one instant has no such members.
func (st *State) Bounds(later *State) (least, most int64) {
	least, _ = st.Off()
	most = least
	if st.Took == 0 {
		return least, most
	}
	had, has := make(map[string]bool, len(st.Members)), make(map[string]bool, len(later.Members))
	for _, m := range st.Members {
		had[m.Raw] = true
	}
	first, last := st.Members[part-1], st.Members[len(st.Members)-part]
	for _, m := range later.Members {
		if has[m.Raw] = true; !had[m.Raw] && first.before(m) && m.before(last) {
			most += int64(m.Permits) // it may have been there
		}
	}
	for _, m := range st.Members[part : len(st.Members)-part] {
		if !has[m.Raw] && !later.expired(m) {
			least -= int64(m.Permits) // it may have gone
		}
	}
	return least, most
}
