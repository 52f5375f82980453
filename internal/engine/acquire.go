// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// Acquire sends a request through the limiter, and returns how it ended. It does not copy the request, because copies
// cost a measurable time when hundreds of callers ask at once.
func (h *Handle) Acquire(ctx context.Context, want Request) (Outcome, error) {
	if want.Floor > 0 {
		return h.acquireLower(ctx, want)
	}
	e, s := h.shard.engine, h.shard
	r := e.newRequest()
	r.ctx, r.want = ctx, want
	if want.Wait {
		r.came = time.Now()
		if want.ofList() {
			if r.want.Timeout > 0 {
				r.want.Timeout += r.came.Sub(want.Came)
			}
			r.came, r.rejected = want.Came, true
		}
	}

	s.Lock()
	if s.closed {
		s.Unlock()
		return Outcome{}, permit.ErrClosed
	}
	if r.usesCached() {
		if a, rejected := s.rejectionLocked(h, r); rejected {
			s.Unlock()
			e.recycle(r)
			return Outcome{Available: a.Available, Wait: a.Wait, Reply: a}, nil
		}
	}
	l := s.limiterLocked(&h.Link)
	if want.Policy != nil && l.tryLocalLocked(r) {
		s.Unlock()
		got := e.recycle(r)
		return got, got.Err
	}
	if l.addLocked(r) {
		l.scheduleLocked()
		wait := l.headWaitLocked()
		s.Unlock()
		return Outcome{Wait: wait}, nil
	}
	l.scheduleLocked()
	s.Unlock()
	ended, wait, err := l.await(ctx, s, r, want.Timeout)
	if ended == nil {
		return Outcome{Wait: wait}, err
	}
	got := e.recycle(ended)
	return got, got.Err
}

// Grace is how long a caller whose time is up waits for a reply that is on its way. With it, a timeout shorter than a
// round trip acts as one try, and a caller is served whose timeout ends just when the permits expire.
const Grace = 10 * time.Millisecond

// await waits for the outcome of a request. When the caller's time is up or ctx is done, it returns at once, whatever
// is in flight, with no request but with the wait until the first waiter can be served. The limiter passes on permits
// that are granted to the request afterwards. Once the request has its outcome, the limiter may be reused for another
// name, so its fields, such as the shard s, must not be read without the lock.
func (l *limiter) await(ctx context.Context, s *shard, r *request, timeout time.Duration) (*request, time.Duration, error) {
	var timeUp <-chan time.Time
	if r.hasDeadline() {
		if r.timer == nil {
			r.timer = time.NewTimer(timeout)
		} else {
			r.timer.Reset(timeout)
		}
		timeUp = r.timer.C
		defer r.timer.Stop()
	}
	if timeUp == nil && ctx.Done() == nil {
		<-r.done
		return r, 0, nil
	}
	for {
		select {
		case <-r.done:
			return r, 0, nil
		case <-ctx.Done():
			return l.leave(s, r, ctx.Err())
		case <-timeUp:
			if timeUp = l.graceFor(s, r); timeUp == nil {
				return l.leave(s, r, nil)
			}
		}
	}
}

// graceFor starts the grace of a request whose time is up if a reply is on its way. Each request gets it only
// once.
func (l *limiter) graceFor(s *shard, r *request) <-chan time.Time {
	s.Lock()
	defer s.Unlock()
	if r.overdue || r.Degraded || l.lastErr != nil {
		return nil
	}
	if !time.Now().Before(l.first.grantableAt) {
		l.scheduleLocked() // the permits may expire at this very instant
	}
	if r.state != hasEnded && l.flights.ofQueue() == 0 {
		return nil
	}
	r.overdue = true
	r.timer.Reset(Grace)
	return r.timer.C
}

// leave removes a request whose caller no longer waits, because of err or because its time is up, and returns the wait
// until the first waiter can be served. If the request has an outcome already, that counts.
func (l *limiter) leave(s *shard, r *request, err error) (*request, time.Duration, error) {
	s.Lock()
	if r.Degraded && r.state != hasEnded && err == nil {
		l.serveQueueLocked(false) // its quota may be free at this very instant
		l.rearmLocked()
	}
	if r.state == hasEnded {
		s.Unlock()
		<-r.done
		return r, 0, nil
	}
	r.state = hasLeft
	err = l.whyLeftLocked(r, err)
	wait := l.headWaitLocked()
	l.abandonLocked(r)
	if r.Degraded {
		l.serveQueueLocked(false) // the callers behind it
		l.rearmLocked()
	}
	s.Unlock()
	return nil, wait, err
}

// whyLeftLocked returns the error of a request that its caller leaves because of err, or because its time is up. The
// error wraps ErrUnavailable if Redis is known to be down, if the last attempt has failed, or if it is not known
// whether the request was rejected.
func (l *limiter) whyLeftLocked(r *request, err error) error {
	if r.Degraded {
		return err
	}
	_, down := l.link.Health().Since()
	if down != nil {
		down = link.WithLast(down, l.lastErr)
		if err != nil {
			down = fmt.Errorf("%w: %w", err, down)
		}
		return permit.Unavailable("acquire", l.link.Name, down)
	}
	var waited time.Duration // for a call that is on its way
	for _, f := range l.flights {
		waited = max(waited, time.Since(f.begin))
	}
	if waited == 0 && r.want.Wait {
		waited = time.Since(r.came)
	}
	// It is on its way, or stands behind a call that is.
	asks := (l.flights.ofQueue() > 0 || !r.want.Wait) && !r.rejected && r.place == nil
	asks = asks && (err == nil || waited >= permit.Patience)
	failure := l.lastErr
	if failure != nil || asks || err != nil && l.link.Health().Suspected() {
		failure = cmp.Or(l.link.Backend.Shortage(), failure) // what holds now comes before how an attempt ended some time ago
	}
	if failure != nil || asks {
		return permit.NoReply(permit.Of("acquire", l.link.Name), waited, failure, err)
	}
	return err
}
