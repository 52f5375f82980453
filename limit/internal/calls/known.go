// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"math/rand/v2"
	"slices"
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
	// mostKnown is how many keys of a limiter have rejections that are known, and longestKnown how long
	// their Redis keys may be, so that forged keys do not fill the memory.
	mostKnown, longestKnown = 4096, 512
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

// known has the rejections of all keys of a limiter. The zero value is empty.
type known struct {
	rejections sync.Map // from slots to *Rejection
	count      atomic.Int64
}

// Rejected returns the rejection of q, if it is known that Redis would reject it, and when Redis was asked.
func (c *Limiter) Rejected(key string, q Demand) (result ratelimiter.Result, sent time.Time, ok bool) {
	r := c.known.of(key)
	if r == nil {
		return ratelimiter.Result{}, time.Time{}, false
	}
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

// Learn takes in what the reply to f says. Nothing is known of a key of which nothing was rejected, since its clock
// may have been put forward.
func (c *Limiter) Learn(f *Flight, rejected bool, r Rejection) {
	if c.WithoutKnown {
		return
	}
	k, key := &c.known, f.Runs[0].Calls[0].Slot
	if _, isLog := r.State.(log); isLog && rejected {
		r.sizes = sizes(f, r, k.of(key))
		rejected = len(r.sizes) > 0
	}
	if rejected && len(key) <= longestKnown {
		k.put(key, r)
	} else {
		k.forget(key)
	}
}

// sizes returns which requests of f were rejected, and before those, no more than mostSizes in all.
func sizes(f *Flight, r Rejection, before *Rejection) []size {
	var list []size
	for i := range f.Runs {
		calls := f.Runs[i].Calls
		if last := calls[len(calls)-1]; !last.Result.Granted && len(list) < mostSizes {
			list = append(list, size{last.least(), last.Result, min(last.Result.Wait, micros(r.State.(log).Due()-r.Now)), r.Now, r.Sent})
		}
	}
	if before == nil {
		return list
	}
	for _, x := range before.sizes {
		again := slices.ContainsFunc(list, func(y size) bool { return x.n == y.n })
		if !again && len(list) < mostSizes && r.Now >= x.now && r.Sent.Sub(x.sent) < KnownFor {
			list = append(list, x)
		}
	}
	return list
}

// of returns the rejection of a key, or nil.
func (k *known) of(key string) *Rejection {
	v, _ := k.rejections.Load(key)
	r, _ := v.(*Rejection)
	return r
}

// forget forgets the rejection of a key.
func (k *known) forget(key string) {
	if _, there := k.rejections.LoadAndDelete(key); there {
		k.count.Add(-1)
	}
}

// put adds the rejection of a key, in place of the last one. If there are too many, it drops those that are too old and about half of the others.
func (k *known) put(key string, r Rejection) {
	if k.count.Load() >= mostKnown && k.of(key) == nil {
		k.rejections.Range(func(key, v any) bool {
			if rand.IntN(2) == 0 || r.Sent.Sub(v.(*Rejection).Sent) >= KnownFor {
				k.forget(key.(string))
			}
			return true
		})
	}
	if _, there := k.rejections.Swap(key, &r); !there {
		k.count.Add(1)
	}
}
