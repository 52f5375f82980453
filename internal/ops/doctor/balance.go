// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
)

// readings is how often a state is read that does not add up.
const readings = 6

// read reads a state, and all of it where that is possible.
func (d *Doctor) read(ctx context.Context, name, client string, skip func(string, error) error) (*survey.State, error) {
	st, err := d.Survey.Read(ctx, name, client)
	if err != nil {
		return nil, err
	}
	return d.whole(ctx, st, skip)
}

// whole reads all of a state. What does not add up is read again: a caller that counts a large set leaves it so for a moment,
// and members that somebody settles while they are read are counted as they were before. Value and members differ from
// the rate by a number that grants, expiry and settling leave as it is, so each reading, with what has changed until the
// next, narrows it down. It is no balance until that number cannot be 0.
func (d *Doctor) whole(ctx context.Context, st *survey.State, skip func(string, error) error) (*survey.State, error) {
	var last *survey.State
	var least, most int64
	for n := range readings {
		if t := st.Types[2]; t != "zset" && t != "none" {
			return st, nil // that is a finding of its own
		}
		whole, err := d.Survey.Complete(ctx, st)
		if err == nil && !whole && st.Types[2] == "zset" {
			err = fmt.Errorf("the set of %d members is too large, or grows faster than it can be read", st.Count)
		}
		if err != nil {
			return st, skip("balance", err)
		}
		off, known := st.Off()
		if !known || off == 0 || st.Took == 0 && st.Count < 500 {
			return st, nil
		}
		if last != nil {
			a, b := last.Bounds(st)
			if n == 1 || max(least, a) > min(most, b) { // or it was changed in between
				least, most = a, b
			} else {
				least, most = max(least, a), min(most, b)
			}
			if least > 0 || most < 0 {
				return st, nil
			}
		}
		if n == readings-1 {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		last = st
		if st, err = d.Survey.Read(ctx, st.Name, st.ClientID); err != nil {
			return nil, err
		}
	}
	st.Whole = false
	return st, skip("changes", fmt.Errorf("the %d members were changed while they were read, for %v: with the permits left they may be from %d below to %d above the rate",
		st.Count, st.Took.Round(time.Millisecond), -least, most))
}
