// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A Reservation is a grant in Redis that has all of the permits wanted before they have come back, for the first waiter of a
// queue, and is used only when they have; see scripts/reserve.lua. Its methods talk to Redis, so no lock is held. It belongs to
// one goroutine.
type Reservation struct {
	Link    *Link
	ID      permit.ID
	Permits int64       // wanted
	Type    permit.Type // of the limiter
	Part    bool        // of what is wanted of several limiters
	Ahead   bool        // take permits before they have come back; otherwise all that are there, or what is held
	Waited  time.Duration

	Last permit.Reserved // the last reply
	Rate permit.Rate     // as last reported

	unsure bool // a call has been lost, so Redis may hold another number
}

// Renew moves the grant of asked, of the given number of permits, to the present instant. It reports false if they cannot be
// granted now: then nothing is held any more. After an error the grant may be held or not.
func (l *Link) Renew(ctx context.Context, asked Asked, permits int64) (held bool, err error) {
	r := Reservation{Link: l, ID: asked.ID, Type: asked.Type, Permits: permits, Last: permit.Reserved{Held: permits}}
	err = r.Grow(ctx)
	return err != nil || r.Complete(), err
}

// Complete reports whether all permits wanted are held and have come back.
func (r *Reservation) Complete() bool { return r.Last.Held == r.Permits && r.Last.Lacking == 0 }

// Holds reports whether the reservation holds, or may hold, permits or a place among the reservations of the limiter.
func (r *Reservation) Holds() bool { return r.Last.Held > 0 || r.Last.Place > 0 || r.unsure }

// Grow takes the permits wanted, and moves what is held to the present, until there is a reply. A call that was certainly not
// carried out, or was never made because of an outage, leaves no doubt about what is held.
func (r *Reservation) Grow(ctx context.Context) error {
	var a permit.Reserved
	err := r.Link.Gated(ctx, "acquire", func(ctx context.Context, _ bool) (err error) {
		a, err = r.Link.Backend.Reserve(ctx, r.call(r.Permits))
		failure, lost := err.(*retry.Error)
		r.unsure = r.unsure || lost && failure.Outcome != retry.NotExecuted
		return err
	})
	if err != nil {
		return err
	}
	r.unsure, r.Type = false, a.Rate.Type
	r.Rate, r.Last = Bounded(a.Rate), a
	if a.Lacking > 0 && a.Place == 1 && a.Wait >= r.Rate.Interval {
		// Some members lie ahead of the clock, which may have been set back. Acquire marks them, so that they
		// are spent an interval from now, and lifts blocks of a cool-down that is over.
		_, err = r.Link.Look(ctx, 1)
	}
	return err
}

// call returns the arguments of a call that leaves want permits held.
func (r *Reservation) call(want int64) permit.Reservation {
	return permit.Reservation{Type: r.Type, ID: r.ID, Want: want, Held: r.Last.Held, Unsure: r.unsure, Ahead: r.Ahead, Waited: r.Waited, Part: r.Part}
}

// Refund gives back what is held. It works even if the Engine is closed. If it fails, the permits are free again after one
// interval; see undo.
func (r *Reservation) Refund() {
	call := r.call(0)
	ctx := context.Background()
	err := r.Link.undo(ctx, func(ctx context.Context, _ bool) error {
		_, err := r.Link.Backend.Reserve(ctx, call)
		return err
	})
	if _, lost := err.(*retry.Error); !lost {
		r.Last.Held, r.Last.Lacking, r.Last.Place, r.unsure = 0, 0, 0, false
		r.Link.Changed()
	}
}
