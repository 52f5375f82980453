package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A reservation is a grant in Redis that grows until it has all of the permits wanted, and is used only then: for the head
// of a line that takes its permits ahead, or for a list that waits for its other limiters; see scripts/reserve.lua. Its
// methods talk to Redis, so no lock is held. It belongs to one goroutine.
type reservation struct {
	h       *Handle
	permits int64 // wanted
	typ     permit.Type
	id      permit.ID
	held    int64         // permits, by the last reply
	ahead   bool          // it holds permits before they have come back
	stands  bool          // it takes none yet
	lacking int64         // of those held, how many have yet to come back
	place   int64         // among those that take permits ahead; 0 for none
	since   int64         // what is told of that: since when the caller waits, as permit.Reservation has it
	stamp   int64         // what the last reply said of it
	wait    time.Duration // until these have, as of the last reply
	unsure  bool          // a call has been lost, so Redis may hold another number
	moved   time.Time     // when it was last moved to the present
	rate    permit.Rate   // as last reported, without the type
	idle    float64       // for how long permits have lain idle: permits × seconds
}

func (v *reservation) whole() bool        { return v.held == v.permits && v.lacking == 0 }
func (v *reservation) renewal() time.Time { return v.moved.Add(v.rate.Interval / 2) }

// stand takes or renews the place among those that take permits ahead, and takes no permits. If it is the first place, wait
// is how long it takes until all permits are free.
func (v *reservation) stand(ctx context.Context) error {
	v.ahead, v.stands = true, true
	err := v.send(ctx, v.permits, false)
	v.stands = false
	return err
}

// take takes as many permits as are free. If that is less than wanted, wait is how long it takes until there
// are more.
func (v *reservation) take(ctx context.Context) (wait time.Duration, err error) {
	if v.ahead = v.rate.MinGap == 0 && !v.whole(); v.ahead {
		if err := v.send(ctx, v.permits, false); err != nil || v.whole() {
			return 0, err
		}
		if v.lacking > 0 {
			return max(v.wait, time.Millisecond), nil
		}
		v.ahead = false // a cool-down has begun, or the permits left have been lost
	}
	for range 3 {
		if err := v.send(ctx, v.permits, false); err != nil || v.whole() {
			return 0, err
		}
		next := int64(1) // each permit as soon as it is back, because a peer may want it, too
		if v.rate.MinGap > 0 {
			next = v.permits - v.held
		}
		if wait, err = v.waitFor(ctx, next); err != nil || wait > 0 {
			return max(wait, min(v.rate.Interval/gatherSteps, maxGatherStep)), err
		}
	}
	return time.Millisecond, nil // others are always faster
}

// waitFor returns how long it takes until that many more permits are free. It takes none.
func (v *reservation) waitFor(ctx context.Context, permits int64) (time.Duration, error) {
	a, err := (&part{h: v.h, permits: permits}).look(ctx)
	if err != nil {
		return 0, err
	}
	v.rate, v.typ = a.Rate, a.Rate.Type
	v.rate.Interval = min(v.rate.Interval, maxInterval)
	if a.Granted[0] > 0 {
		return 0, nil
	}
	return max(a.Wait, time.Millisecond), nil
}

// send makes the call after which that many permits are to be held, until there is a reply. With whole set it takes
// all of them or none. The reply tells how many are held.
func (v *reservation) send(ctx context.Context, want int64, whole bool) error {
	v.h.Touch()
	defer v.h.Touch()
	for range permit.MaxTypeChanges {
		var a permit.Reserved
		answered := false
		err := v.h.gated(ctx, "acquire", func(replay bool) (err error) {
			v.unsure = v.unsure || replay
			sent := time.Now()
			a, err = v.h.backend.Reserve(ctx, v.call(want, whole))
			_, lost := err.(*retry.Error)
			answered = !lost
			v.h.noteReply(nil, sent, err)
			return err
		})
		v.unsure = v.unsure || !answered
		if other, ok := err.(*permit.WrongTypeError); ok {
			// What it held belongs to the other type, whose keys are no longer used.
			v.typ, v.held, v.lacking, v.place, v.unsure = other.Type, 0, 0, 0, false
			v.h.LearnType(other.Type)
			continue
		}
		if err != nil {
			return err
		}
		v.rate.Permits, v.rate.Interval = a.Rate.Permits, min(a.Rate.Interval, maxInterval)
		v.count(a.Held, a.Lacking)
		v.unsure = false
		if v.ahead {
			v.wait, v.place, v.stamp = a.Wait, a.Place, a.Since
			if v.lacking > 0 && v.place == 1 && v.wait >= v.rate.Interval {
				// Some members lie ahead of the clock, which may have been set back. Acquire marks them, so that they
				// are spent an interval from now, and lifts blocks of a cool-down that is over.
				_, err = v.waitFor(ctx, 1)
			}
		}
		return err
	}
	return permit.TypeKeepsChanging("acquire", v.h.name)
}

// call returns the arguments of a call after which that many permits are held.
func (v *reservation) call(want int64, whole bool) permit.Reservation {
	return permit.Reservation{Type: v.typ, ID: v.id, Want: want, Held: v.held, Whole: whole, Unsure: v.unsure,
		Ahead: v.ahead, Stand: v.stands, Since: v.since}
}

// count adds up what has lain idle.
func (v *reservation) count(held, lacking int64) {
	now := time.Now()
	if v.held > v.lacking {
		v.idle += float64(v.held-v.lacking) * now.Sub(v.moved).Seconds()
	}
	v.held, v.lacking, v.moved = held, lacking, now
}

// refund works even if the Engine is closed. If it fails, the permits are free again after one interval.
func (v *reservation) refund() {
	v.ahead = v.ahead || v.place > 0 // the place goes, too
	call := v.call(0, false)
	err := retry.Do(nil, nil, func(bool) error {
		_, err := v.h.backend.Reserve(context.Background(), call)
		return err
	})
	if _, lost := err.(*retry.Error); !lost {
		v.held, v.lacking, v.place, v.unsure = 0, 0, 0, false
		v.h.Changed()
	}
}
