// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A Reservation is a grant in Redis that grows until it has all of the permits wanted, and is used only then: for the first waiter
// of a queue that takes its permits ahead, or for a caller that waits for other limiters; see scripts/reserve.lua. Its
// methods talk to Redis, so no lock is held. It belongs to one goroutine.
type Reservation struct {
	Link    *Link
	ID      permit.ID
	Permits int64       // wanted
	Type    permit.Type // of the limiter
	Ahead   bool        // take permits before they have come back
	Since   int64       // since when the caller waits, as permit.Reservation has it

	Last  permit.Reserved // the last reply; what it says of a place is that of the last with Ahead
	Rate  permit.Rate     // as last reported, without the type
	Moved time.Time       // when the grant was last moved to the present
	Idle  float64         // for how long permits have lain idle: permits × seconds

	unsure bool // a call has been lost, so Redis may hold another number
}

// Waited returns for how long a caller has waited that came then, as permit.Reservation.Since has it.
func Waited(came time.Time) int64 { return -max(1, time.Since(came).Milliseconds()) }

// An extent is how much a call takes.
type extent int

const (
	asMuchAsIsFree extent = iota
	allOrNothing
	onlyThePlace
)

// Complete reports whether all permits wanted are held and have come back.
func (v *Reservation) Complete() bool { return v.Last.Held == v.Permits && v.Last.Lacking == 0 }

// Holds reports whether permits are held, or may be, or a place among those that take permits ahead.
func (v *Reservation) Holds() bool { return v.Last.Held > 0 || v.Last.Place > 0 || v.unsure }

// Renewal returns when the grant is to be moved to the present, so that it does not expire.
func (v *Reservation) Renewal() time.Time { return v.Moved.Add(v.Rate.Interval / 2) }

// Stand takes or renews the place among those that take permits ahead, and takes no permits. If it is the first place, Wait
// of the reply is how long it takes until all permits are free.
func (v *Reservation) Stand(ctx context.Context) error {
	v.Ahead = true
	return v.send(ctx, v.Permits, onlyThePlace)
}

// Grow takes as many of the permits wanted as it gets.
func (v *Reservation) Grow(ctx context.Context) error { return v.send(ctx, v.Permits, asMuchAsIsFree) }

// GrowToAll takes all of the permits wanted, or none.
func (v *Reservation) GrowToAll(ctx context.Context) error {
	return v.send(ctx, v.Permits, allOrNothing)
}

// Drop gives back what is held; the reservation goes on.
func (v *Reservation) Drop(ctx context.Context) error {
	err := v.send(ctx, 0, asMuchAsIsFree)
	if err == nil {
		v.Link.Changed()
	}
	return err
}

// Ask returns how long it takes until that many more permits are free. It takes none.
func (v *Reservation) Ask(ctx context.Context, permits int64) (wait time.Duration, err error) {
	a, err := v.Link.Look(ctx, permits)
	if err != nil {
		return 0, err
	}
	v.Rate, v.Type = Bounded(a.Rate), a.Rate.Type
	if a.Granted[0] > 0 {
		return 0, nil
	}
	return max(a.Wait, time.Millisecond), nil
}

// send makes the call after which that many permits are to be held, until there is a reply.
func (v *Reservation) send(ctx context.Context, want int64, x extent) error {
	var a permit.Reserved
	answered := false
	err := v.Link.Gated(ctx, "acquire", func(replay bool) (err error) {
		v.unsure = v.unsure || replay
		a, err = v.Link.Backend.Reserve(ctx, v.call(want, x))
		_, lost := err.(*retry.Error)
		answered = !lost
		return err
	})
	v.unsure = v.unsure || !answered
	if err != nil {
		return err
	}
	v.learn(a)
	if v.Ahead && a.Lacking > 0 && a.Place == 1 && a.Wait >= v.Rate.Interval {
		// Some members lie ahead of the clock, which may have been set back. Acquire marks them, so that they
		// are spent an interval from now, and lifts blocks of a cool-down that is over.
		_, err = v.Ask(ctx, 1)
	}
	return err
}

// call returns the arguments of a call after which that many permits are held.
func (v *Reservation) call(want int64, x extent) permit.Reservation {
	return permit.Reservation{Type: v.Type, ID: v.ID, Want: want, Held: v.Last.Held, Whole: x == allOrNothing, Unsure: v.unsure,
		Ahead: v.Ahead, Stand: x == onlyThePlace, Since: v.Since}
}

func (v *Reservation) learn(a permit.Reserved) {
	v.Count()
	v.unsure, v.Type = false, a.Rate.Type
	v.Rate.Permits, v.Rate.Interval = a.Rate.Permits, min(a.Rate.Interval, MaxInterval)
	if !v.Ahead {
		a.Wait, a.Place, a.Since = v.Last.Wait, v.Last.Place, v.Last.Since
	}
	v.Last = a
}

func (v *Reservation) clear() {
	v.Last.Held, v.Last.Lacking, v.Last.Place, v.unsure = 0, 0, 0, false
}

// Count adds up for how long permits have lain idle until now.
func (v *Reservation) Count() {
	now := time.Now()
	if v.Last.Held > v.Last.Lacking {
		v.Idle += float64(v.Last.Held-v.Last.Lacking) * now.Sub(v.Moved).Seconds()
	}
	v.Moved = now
}

// Refund gives back what is held. It works even if the Engine is closed. If it fails, the permits are free again after one
// interval.
func (v *Reservation) Refund() {
	v.Ahead = v.Ahead || v.Last.Place > 0 // the place goes, too
	call := v.call(0, asMuchAsIsFree)
	err := retry.Do(nil, nil, func(bool) error {
		_, err := v.Link.Backend.Reserve(context.Background(), call)
		return err
	})
	if _, lost := err.(*retry.Error); !lost {
		v.clear()
		v.Link.Changed()
	}
}
