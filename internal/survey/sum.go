// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// maxSum is how many members Complete reads.
const maxSum = 100_000

// Complete reads the members of a large set that Read has left out, in steps of 500, and reports whether st is Whole
// now. It watches the keys, so that what it reads is what they held at one instant. If the set is changed meanwhile it
// tries once more; a set that changes faster than it can be read, or of more than 100,000 members, stays as it is.
func (s *Survey) Complete(ctx context.Context, st *State) (bool, error) {
	if st.Whole || st.Count > maxSum || !st.OneInstant {
		return st.Whole, nil
	}
	rdb, err := s.node(ctx, st.Name)
	if err != nil {
		return false, err
	}
	watcher, ok := rdb.(interface {
		Watch(ctx context.Context, fn func(*redis.Tx) error, keys ...string) error
	})
	if !ok {
		return false, nil
	}
	for range 2 {
		next := *st
		err := watcher.Watch(ctx, func(tx *redis.Tx) error { return next.complete(ctx, tx) }, st.Keys[:]...)
		if err == nil {
			*st = next
			return true, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if !errors.Is(err, redis.TxFailedErr) && !errors.Is(err, errGrown) {
			return false, err
		}
	}
	return false, nil
}

// errGrown reports that the set has grown beyond what Complete reads.
var errGrown = errors.New("the set has grown")

// complete reads all members, and then the rest at the instant of EXEC.
func (st *State) complete(ctx context.Context, tx *redis.Tx) error {
	var members []Member
	for {
		zs, err := tx.ZRangeWithScores(ctx, st.Keys[2], int64(len(members)), int64(len(members))+part-1).Result()
		if err != nil {
			return err
		}
		members = append(members, membersOf(zs)...)
		if len(zs) < part {
			break
		}
		if len(members) > maxSum {
			return errGrown
		}
	}
	var (
		now   *redis.TimeCmd
		value *redis.StringCmd
	)
	_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
		now, value = p.Time(ctx), p.Get(ctx, st.Keys[1])
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	st.Value, err = value.Result()
	st.HasValue = err == nil
	st.Time, st.Members, st.Count, st.Whole = now.Val(), slices.Clip(members), int64(len(members)), true
	return nil
}
