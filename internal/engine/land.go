// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/fair"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// land hands out what was granted, and decides how the flight goes on.
func (f *flight) land(a *permit.Reply, begin time.Time) {
	l := f.limiter
	l.shard.Lock()
	missed := f.learnLocked(a, begin)
	head := l.waiters.first
	f.grantLocked(a)
	if len(f.unclaimed) > 0 {
		f.passOnLocked(a)
	}
	head = l.noteHeadLocked(head)

	rejected := len(f.Runs) // the first run that was rejected
	for i := range a.Granted {
		if a.Granted[i] >= 0 && a.Granted[i] < f.Runs[i].Count {
			rejected = i
			break
		}
	}
	if rejected > 0 {
		l.shard.rejections.Forget(l.link.QueueID) // something was granted
	}
	headLeft := rejected < len(f.Runs) && len(f.callers[rejected]) == 0
	permits, left := f.Runs[0].Permits, f.pruneLocked()

	checked := f.Check
	f.Cursor, f.Check = permit.Cursor{}, permit.Unchecked
	switch {
	case a.Next == permit.Heal && !f.Healed:
		f.Check = checked // why it is to be healed
		f.next, f.Healed = healsLast, true
		if left {
			f.next = heals
		}
	case !left:
	case missed && !l.permitsAreKeptLocked() && !l.triesStandBehindLocked():
		f.next, f.DryRun = asks, false // those whom the permits were kept for have been served, or have left
	case a.Next == permit.On || headLeft:
		f.next, f.Check = asks, checked
		if f.Runs[0].Permits == permits && !headLeft {
			f.Cursor = a.Cursor
		}
	default:
		if a.Next == permit.Heal {
			// Permits were lost again in the meantime, and the wait is not known. A pause keeps the callers
			// from spinning.
			a.Wait = max(a.Wait, time.Millisecond)
		} else if f.callers[0][0].usesCached() && !f.InOrder && !f.DryRun && f.changes == l.changes {
			l.shard.rejections.Learn(l.link.QueueID, f.Runs[0].Permits, begin, a)
		}
		f.rejectLocked(a)
	}
	l.noteHeadLocked(head)
	f.crowd = len(l.shard.ended) > 1
	l.shard.Unlock()
}

// learnLocked records what the reply says about the limiter. It reports whether a dry run found permits.
func (f *flight) learnLocked(a *permit.Reply, begin time.Time) (missed bool) {
	l := f.limiter
	a.Context = f.ctx
	l.lastErr = nil
	if a.Rate.Interval > 0 {
		l.learnRateLocked(a, begin)
	}
	if f.DryRun {
		// The permits that the dry run found belong to another request; see takeTriesLocked.
		for i := range a.Granted {
			missed = missed || a.Granted[i] > 0
			a.Granted[i] = min(a.Granted[i], 0)
		}
		a.Wait = max(a.Wait, time.Millisecond)
	}
	if a.Rate.Interval > 0 && l.share.Counts() {
		f.learnOthersLocked(a)
	}
	return missed
}

// learnRateLocked records the rate in the reply to a call that began at the given instant.
func (l *limiter) learnRateLocked(a *permit.Reply, begin time.Time) {
	l.rate = link.Bounded(a.Rate)
	if ledger := l.shard.rememberedLocked(l.link.Key); ledger != nil {
		ledger.Learn(a, begin)
	}
}

// learnOthersLocked takes in what the reply says about others.
func (f *flight) learnOthersLocked(a *permit.Reply) {
	l := f.limiter
	f.Allowance = l.share.Learn(fair.Call{Begin: f.begin, Permits: a.Taken(f.Runs), Alone: len(l.flights) == 1, Allowance: f.Allowance}, a, l.rate, time.Now())
}

// grantLocked gives the grants of each run to its callers that are still there, in their order. Grants without a
// caller are unclaimed.
func (f *flight) grantLocked(a *permit.Reply) {
	left := a.Available + a.Taken(f.Runs)
	f.unclaimed = f.unclaimed[:0]
	for i := range f.Runs {
		each, n := f.Runs[i].Permits, a.Granted[i]
		rest := f.callers[i][:0]
		for _, r := range f.callers[i] {
			switch {
			case r == nil || !r.live():
			case n < 0:
				f.limiter.shard.failLocked(r, permit.Exceeds(f.limiter.link.Name, each, f.Floor, a.Rate.Permits))
			case n > 0:
				n--
				left -= each
				f.taken += each
				if r.want.Own {
					r.Asked = link.Asked{Type: f.Type, ID: f.ID.Run(i)}
				}
				f.limiter.shard.grantLocked(r, a, left)
			default:
				rest = append(rest, r)
			}
		}
		clear(f.callers[i][len(rest):])
		f.callers[i] = rest
		if n > 0 {
			left -= n * each
			granted := a.Granted[i] * each
			f.unclaimed = append(f.unclaimed, permit.Grant{ID: f.ID.Run(i), Permits: granted, Keep: granted - n*each})
		}
	}
}

// passOnLocked gives unclaimed permits to the callers in the queue, as long as the first of them can be served and
// came before Redis was asked. A caller that came later could get a grant that is older than its call. By the time it
// uses the grant, Redis may have granted the same permits again.
func (f *flight) passOnLocked(a *permit.Reply) {
	l := f.limiter
	if l.flights.ofQueue() > 0 && !f.InOrder {
		return // another flight is about to serve them
	}
	_, down := l.link.Health().Since()
	takes := func(r *request, free int64) bool {
		return r != nil && r.place == nil && !r.want.Own && (down == nil || !r.usesQuota()) && r.want.Permits <= free && !r.came.After(f.asked)
	}
	for i := range f.unclaimed {
		g := &f.unclaimed[i]
		for r := l.waiters.first; takes(r, g.Permits-g.Keep); r = l.waiters.first {
			g.Keep += r.want.Permits
			l.shard.grantLocked(r, a, a.Available)
		}
	}
}

// rejectLocked ends the tries and lets the queue wait. A reply reports the wait of only one request. So the flight
// asks again for tries that were rejected behind others and have to report their own wait.
func (f *flight) rejectLocked(a *permit.Reply) {
	l := f.limiter
	for i := range f.Runs {
		rest := f.callers[i][:0]
		for _, r := range f.callers[i] {
			r.rejected, r.Degraded = true, false
			switch {
			case r.want.Wait && !r.overdue:
				r.state = isQueued
			case i > 0 && !f.InOrder && r.want.TellWait:
				rest = append(rest, r)
			default:
				l.shard.rejectLocked(r, a)
			}
		}
		clear(f.callers[i][len(rest):])
		f.callers[i] = rest
	}
	if !f.InOrder {
		if f.pruneLocked() {
			f.next = asks
		}
		return
	}
	now := time.Now()
	if f.ticket.Passes() {
		_, wait := l.share.Next(f.Runs[0].Permits, l.waiters.n-1, f.Allowance.Grace, a, l.rate, now)
		l.first.pass.Wait(f.ticket, now.Add(max(wait, time.Millisecond)))
		return
	}
	most := a.Rate.Interval // in a cool-down it is more
	if now.Sub(l.first.since) > 2*most {
		most += f.Allowance.Grace // others take all permits of one instant, time and again
	}
	l.first.mayGather = a.Wait <= most && a.Rate.MinGap == 0
	l.first.pass.Rejected(&l.share, a, f.Runs[0].Permits+f.Floor)
	soon, wait := l.share.Next(l.waiters.first.permits(), l.waiters.n-1, f.Allowance.Grace, a, l.rate, now)
	l.first.grantableAt = now.Add(soon)
	l.first.askAt = now.Add(min(max(wait, time.Millisecond), l.shard.engine.Recheck(a.Rate)) + l.yield(a.Rate))
	if f.changes != l.changes {
		l.first.askAt = time.Time{}
	}
	for r := l.waiters.earliest(); r != nil && l.isTooLateLocked(r); r = l.waiters.earliest() {
		l.shard.rejectLocked(r, a)
	}
}
