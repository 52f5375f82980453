// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A gathering reserves the permits of the first waiter before they have expired. Otherwise callers that take each
// permit the instant it is free could keep the first waiter waiting. It has a goroutine of its own.
//
// In Redis the permits are those of a Reservation, which is a grant like any other, and the permits left are below 0
// by what has yet to come back. So nobody finds a permit free before the first waiter has all of its own, which takes
// an interval at most. Of all processes one at a time does that, in the order in which they came, and a pause follows
// in which others go on; see scripts/reserve.lua.
//
// The lock of the shard guards head.
type gathering struct {
	l        *limiter
	head     *request // nil if it has its outcome or has left
	stop     chan struct{}
	reserved link.Reservation
}

// mustGatherLocked reports whether the permits of the first waiter, which is r and may gather, have to be taken ahead. That
// is so if it has been passed over for an interval, or is large. Beside other processes it must have the share for it, unless its
// caller was passed over elsewhere. A lower class never takes any ahead.
func (l *limiter) mustGatherLocked(r *request) bool {
	if !r.rejected || l.link.Floor > 0 || l.rate.Interval <= 0 {
		return false
	}
	now := time.Now()
	if !l.share.Contended() {
		return now.Sub(l.first.since) > 2*l.rate.Interval // they have not been seen yet
	}
	affords := r.want.ofList() || l.share.Affords(r.want.Permits, l.rate.Interval, now)
	return affords && (l.share.IsLarge(r.want.Permits) || l.headIsStarvingLocked())
}

// gatherLocked begins to gather the permits of the first waiter.
func (l *limiter) gatherLocked(r *request) {
	e := l.shard.engine
	g := &gathering{l: l, head: r, stop: make(chan struct{})}
	g.reserved = link.Reservation{Link: l.link, Permits: r.want.Permits, Type: l.rate.Type, ID: l.link.System.Backends.NewID().Run(0), Ahead: true, Waited: time.Since(r.came), Part: r.want.ofList()}
	l.gathering, r.gathers, l.first.mayGather = g, g, false
	e.calls.Add(1)
	go g.run(context.WithoutCancel(r.ctx))
}

// stopGatheringLocked ends the gathering for r, which has its outcome or has left.
func (r *request) stopGatheringLocked() {
	g := r.gathers
	r.gathers, g.head = nil, nil
	close(g.stop)
}

// run gathers until the first waiter has its permits or has left, or until gathering is of no use. Then it lets the
// queue go on.
func (g *gathering) run(ctx context.Context) {
	l := g.l
	defer l.shard.engine.calls.Done()
	whole, err := g.gather(ctx)
	l.shard.Lock()
	head := g.head
	granted := whole && head != nil
	if granted {
		l.share.Pay(head.want.Permits)
		head.Asked = link.Asked{Type: g.reserved.Type, ID: g.reserved.ID}
		l.shard.grantLocked(head, &permit.Reply{Granted: []int64{1}, Now: time.Now(), Rate: g.rate()}, 0)
	} else if err != nil && head != nil {
		l.shard.failLocked(head, err)
	}
	l.dropEndedLocked() // a part of a list that came before it may have let it pass
	l.gathering = nil
	if granted || head != nil && err != nil {
		l.newHeadLocked()
	} else if head != nil {
		head.gathers = nil
	}
	l.scheduleLocked()
	l.rearmLocked()
	l.shard.Unlock()
	if !granted && g.reserved.Holds() {
		g.reserved.Refund()
	}
}

// gather reports whether all permits have been gathered; if not, the queue asks for them. An error is returned to the
// first waiter. Redis may reply with it only to calls that reserve permits, for example if the ACL hides the key of
// the reservations; the queue would never get it, and the waiter would wait in vain.
func (g *gathering) gather(ctx context.Context) (whole bool, err error) {
	r, closed := &g.reserved, g.l.link.System.Closed
	for {
		if err := r.Grow(ctx); err != nil {
			if errors.Is(err, permit.ErrUnavailable) || errors.Is(err, permit.ErrClosed) {
				err = nil // the queue knows what to do then
			}
			return false, err
		}
		if r.Complete() {
			return true, nil
		}
		if r.Last.Lacking == 0 {
			return false, nil // a cool-down has begun, or the permits left have been lost
		}
		retry.SleepOr(g.pause(), g.stop, closed)
		select {
		case <-g.stop:
			return false, nil
		case <-closed:
			return false, nil
		default:
		}
	}
}

// pause returns how long it takes until there may be more permits.
func (g *gathering) pause() time.Duration {
	l := g.l
	l.shard.Lock()
	defer l.shard.Unlock()
	return max(time.Millisecond, min(g.reserved.Last.Wait, g.reserved.Rate.Interval/2, l.shard.engine.Recheck(l.rate)))
}

func (g *gathering) rate() permit.Rate {
	r := g.reserved.Rate
	r.Type = g.reserved.Type
	return r
}
