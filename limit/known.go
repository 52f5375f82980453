// SPDX-License-Identifier: Apache-2.0

package limit

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
	// knownFor is how long after it was asked for a rejection is known.
	knownFor = time.Second
	// mostKnown is how many keys of a limiter have rejections that are known, and longestKnown how long
	// their Redis keys may be, so that forged keys do not fill the memory.
	mostKnown, longestKnown = 4096, 512
	// mostSizes bounds how many request sizes a log remembers as rejected.
	mostSizes = 8
)

// A rejection is what the process knows about a key of which permits were rejected. It does not change.
type rejection struct {
	state state // that Redis had at the instant now
	now   int64
	sent  time.Time // no later than now, by the clock of this process
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
	atomic.Pointer[rejection]
}

// known has the rejections of all keys of a limiter. The zero value is empty.
type known struct {
	slots sync.Map // from keys to *slot

	mu   sync.Mutex
	ring []*slot // those in slots
	hand int     // the next one in ring to be looked at
}

// rejected returns the rejection of q, if it is known that Redis would reject it, and when Redis was asked.
func (c *config) rejected(key string, q demand) (ratelimiter.Result, time.Time, bool) {
	q.n = q.least()
	v, ok := c.known.slots.Load(key)
	if !ok {
		return ratelimiter.Result{}, time.Time{}, false
	}
	r := v.(*slot).Load()
	if r.sizes != nil {
		for i := range r.sizes {
			x := &r.sizes[i]
			if x.n != q.n {
				continue
			}
			passed, ok := c.passed(x.now, x.sent)
			if !ok || passed >= x.valid {
				return ratelimiter.Result{}, time.Time{}, false
			}
			result := x.result
			result.Wait -= passed
			result.Reset -= passed
			return result, x.sent, true
		}
		return ratelimiter.Result{}, time.Time{}, false
	}
	passed, ok := c.passed(r.now, r.sent)
	if !ok {
		return ratelimiter.Result{}, time.Time{}, false
	}
	q.now, q.spend = r.now+passed.Microseconds(), false
	d := r.state.take(q, epoch{})
	return d.result(), r.sent, !d.granted
}

// passed returns how much time has passed since now, which was not before sent, in whole microseconds rounded
// up. It reports false if that is too long for a rejection to be known, or not known itself.
func (c *config) passed(now int64, sent time.Time) (time.Duration, bool) {
	d := time.Since(sent)
	if c.clock != nil {
		d = micros(c.clock().UnixMicro() - now)
	}
	if rest := d % time.Microsecond; rest > 0 {
		d += time.Microsecond - rest
	}
	return d, d >= 0 && d < knownFor
}

// learn takes in what a reply says. Nothing is known of a key of which nothing was rejected, since its clock
// may have been put forward. A call that takes nothing does not tell the limiter that its clock was put back, so
// nothing is learned from it.
func (k *known) learn(s *Shared, f *flight, rejected bool, r rejection) {
	if !f.spends() || s.config.withoutKnown {
		return
	}
	key := f.slot()
	v, there := k.slots.Load(key)
	if _, log := r.state.(*seenLog); log && rejected {
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
func sizes(f *flight, r rejection, before []size) []size {
	var list []size
	for i := range f.runs {
		calls := f.runs[i].calls
		if last := calls[len(calls)-1]; !last.result.Granted && len(list) < mostSizes {
			list = append(list, size{last.least(), last.result, min(last.result.Wait, micros(r.state.(*seenLog).due-r.now)), r.now, r.sent})
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
		if len(list) < mostSizes && r.now >= x.now && r.sent.Sub(x.sent) < knownFor {
			list = append(list, x)
		}
	}
	return list
}

// forget forgets the rejection of a key.
func (k *known) forget(key string) {
	if v, ok := k.slots.Load(key); ok {
		k.drop(v.(*slot))
	}
}

func (k *known) drop(x *slot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slots.CompareAndDelete(x.key, x)
}

// add adds a rejection, and drops others that are too old, or one of them if there are too many.
func (k *known) add(key string, r *rejection) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range 2 {
		if len(k.ring) == 0 {
			break
		}
		k.hand %= len(k.ring)
		x := k.ring[k.hand]
		if v, ok := k.slots.Load(x.key); ok && v == x && len(k.ring) < mostKnown && r.sent.Sub(x.Load().sent) < knownFor {
			k.hand++
			continue
		}
		k.slots.CompareAndDelete(x.key, x)
		last := len(k.ring) - 1
		k.ring[k.hand], k.ring[last] = k.ring[last], nil
		k.ring = k.ring[:last]
	}
	x := &slot{key: key}
	x.Store(r)
	k.slots.Store(key, x) // what had its place stays in the ring until the hand comes by
	k.ring = append(k.ring, x)
}
