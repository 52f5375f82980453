// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A rejection stays true until the instant that it names, and for requests of more permits until later. As long as it is
// at most a second old, the process that has got it rejects such requests itself. A rejection becomes untrue only if a grant
// is settled, which this process forgets it for, if the key is deleted or if the clock of Redis is put forward, and then for
// that second.

const (
	// KnownFor is how long after it was asked for a rejection is known.
	KnownFor = time.Second
	// MostKnown is how many keys of a limiter have rejections that are known, and longestKnown how long
	// their Redis keys may be, so that forged keys do not fill the memory.
	MostKnown, longestKnown = 4096, 512
	// mostSizes bounds how many request sizes a log remembers as rejected.
	mostSizes = 8
)

// A Rejection is what the process knows about a key of which permits were rejected. It does not change.
type Rejection struct {
	State State // that Redis had at the instant now
	Now   int64
	Sent  time.Time // no later than now, by the clock of this process
	sizes []size    // of a log, whose state does not say when permits come back
}

// A size is a number of permits that was rejected.
type size struct {
	n      int64
	result ratelimiter.Result
	valid  time.Duration // until permits come back, and Available is another
	now    int64
	sent   time.Time
}

// A slot has the rejection of one key.
type slot struct {
	key string
	atomic.Pointer[Rejection]
}

// known has the rejections of all keys of a limiter. The zero value is empty.
type known struct {
	Slots sync.Map // from keys to *slot

	mu   sync.Mutex
	Ring []*slot // those in slots
	hand int     // the next one in ring to be looked at
}

// Rejected returns the rejection of q, if it is known that Redis would reject it, and when Redis was asked.
func (c *Limiter) Rejected(key string, q Demand) (result ratelimiter.Result, sent time.Time, ok bool) {
	v, ok := c.Known.Slots.Load(key)
	if !ok {
		return ratelimiter.Result{}, time.Time{}, false
	}
	r := v.(*slot).Load()
	q.N = q.least()
	for i := range r.sizes {
		if x := &r.sizes[i]; x.n == q.N {
			passed, ok := c.passed(x.now, x.sent)
			result = x.result
			result.Wait -= passed
			result.Reset -= passed
			return result, x.sent, ok && passed < x.valid
		}
	}
	passed, ok := c.passed(r.Now, r.Sent)
	if !ok || r.sizes != nil {
		return ratelimiter.Result{}, time.Time{}, false
	}
	q.Now, q.Spend = r.Now+passed.Microseconds(), false
	d := r.State.Take(q, Epoch{})
	return d.Result(), r.Sent, !d.Granted
}

// Remembered reports whether the key of s is short enough to be remembered.
func (s *Shared) Remembered() bool { return len(s.keys[0]) <= longestKnown }

// passed returns how much time has passed since now, which was not before sent, in whole microseconds rounded
// up. It reports false if that is too long for a rejection to be known, or not known itself.
func (c *Limiter) passed(now int64, sent time.Time) (time.Duration, bool) {
	d := time.Since(sent)
	if c.Clock != nil {
		d = micros(c.Clock().UnixMicro() - now)
	}
	if rest := d % time.Microsecond; rest > 0 {
		d += time.Microsecond - rest
	}
	return d, d >= 0 && d < KnownFor
}

// Learn takes in what a reply says. Nothing is known of a key of which nothing was rejected, since its clock
// may have been put forward. A call that takes nothing does not tell the limiter that its clock was put back, so
// nothing is learned from it.
func (k *known) Learn(s *Shared, f *Flight, rejected bool, r Rejection) {
	if !f.spends() || s.config.WithoutKnown {
		return
	}
	key := f.slot()
	v, there := k.Slots.Load(key)
	if _, isLog := r.State.(log); isLog && rejected {
		var before []size
		if there {
			before = v.(*slot).Load().sizes
		}
		r.sizes = sizes(f, r, before)
		rejected = len(r.sizes) > 0
	}
	switch {
	case !rejected && there:
		k.drop(v.(*slot))
	case !rejected || len(key) > longestKnown:
	default:
		kept := r // so that r itself is not on the heap
		if there {
			v.(*slot).Store(&kept)
		} else {
			k.add(key, &kept)
		}
	}
}

// sizes returns which requests of f were rejected, and before those, no more than mostSizes in all.
func sizes(f *Flight, r Rejection, before []size) []size {
	var list []size
	for i := range f.Runs {
		calls := f.Runs[i].Calls
		if last := calls[len(calls)-1]; !last.Result.Granted && len(list) < mostSizes {
			list = append(list, size{last.least(), last.Result, min(last.Result.Wait, micros(r.State.(log).Due()-r.Now)), r.Now, r.Sent})
		}
	}
	fresh := len(list)
next:
	for _, x := range before {
		for _, y := range list[:fresh] {
			if x.n == y.n {
				continue next
			}
		}
		if len(list) < mostSizes && r.Now >= x.now && r.Sent.Sub(x.sent) < KnownFor {
			list = append(list, x)
		}
	}
	return list
}

// forget forgets the rejection of a key.
func (k *known) forget(key string) {
	if v, ok := k.Slots.Load(key); ok {
		k.drop(v.(*slot))
	}
}

func (k *known) drop(x *slot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Slots.CompareAndDelete(x.key, x)
}

// add adds a rejection, and drops others that are too old, or one of them if there are too many.
func (k *known) add(key string, r *Rejection) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range 2 {
		if len(k.Ring) == 0 {
			break
		}
		k.hand %= len(k.Ring)
		x := k.Ring[k.hand]
		if v, ok := k.Slots.Load(x.key); ok && v == x && len(k.Ring) < MostKnown && r.Sent.Sub(x.Load().Sent) < KnownFor {
			k.hand++
			continue
		}
		k.Slots.CompareAndDelete(x.key, x)
		last := len(k.Ring) - 1
		k.Ring[k.hand], k.Ring[last] = k.Ring[last], nil
		k.Ring = k.Ring[:last]
	}
	x := &slot{key: key}
	x.Store(r)
	k.Slots.Store(key, x) // what had its place stays in the ring until the hand comes by
	k.Ring = append(k.Ring, x)
}
