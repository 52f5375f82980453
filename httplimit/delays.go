// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"math/bits"
	"sync"
	"time"
)

// Delays says how long recent requests to a host took, from the moment at which their permits were granted to the
// header of the response. It covers the last one to two minutes.
//
// A limiter decides when requests leave, whereas the platform counts them when they arrive. The platform's limit
// holds if the delays of any two requests on their way differ by no more than the limiter's window is longer than the
// platform's. That difference cannot be measured from here; Spread measures how far whole round trips differ, which
// is more. Use it to choose a profile's WithMargin, or the interval of a rule of your own.
type Delays struct {
	Requests int64
	Least    time.Duration
	P99      time.Duration // 99 in 100 took no longer; up to an eighth too long
	Most     time.Duration
}

// Spread returns Most - Least.
func (d Delays) Spread() time.Duration { return d.Most - d.Least }

// Delays returns the delays of the requests to host, which is in lower case and without a port. Requests that matched
// no rule, and those without a response, do not count. A Transport measures up to 256 hosts at a time.
func (t *Transport) Delays(host string) Delays {
	if !t.made() {
		return Delays{}
	}
	return t.delays.of(host, time.Now())
}

// maxMeasured is how many hosts a Transport measures.
const maxMeasured = 256

// delaysKept is for how long delays count, and for up to twice that.
const delaysKept = time.Minute

// A delays holds the delays of all hosts, in two generations.
type delays struct {
	mu    sync.Mutex
	since time.Time // when the younger generation began
	young map[string]*delaysOfHost
	old   map[string]*delaysOfHost
}

type delaysOfHost struct {
	Delays
	counts [64 * 8]uint32 // by delayBucket
}

func (s *delays) note(host string, d time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	h := s.young[host]
	if h == nil {
		if len(s.young) >= maxMeasured {
			return
		}
		h = &delaysOfHost{Delays: Delays{Least: d, Most: d}}
		s.young[host] = h
	}
	h.Requests++
	h.Least, h.Most = min(h.Least, d), max(h.Most, d)
	h.counts[delayBucket(d)]++
}

// turn lets the generations age.
func (s *delays) turn(now time.Time) {
	age := now.Sub(s.since)
	if s.young != nil && age < delaysKept {
		return
	}
	s.old = nil
	if age < 2*delaysKept {
		s.old = s.young
	}
	s.young, s.since = map[string]*delaysOfHost{}, now
}

func (s *delays) of(host string, now time.Time) (sum Delays) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	var counts [64 * 8]uint64
	for _, h := range []*delaysOfHost{s.old[host], s.young[host]} {
		if h == nil {
			continue
		}
		if sum.Requests == 0 {
			sum.Least = h.Least
		}
		sum.Requests += h.Requests
		sum.Least, sum.Most = min(sum.Least, h.Least), max(sum.Most, h.Most)
		for i, n := range h.counts {
			counts[i] += uint64(n)
		}
	}
	left := (99*sum.Requests + 99) / 100
	for i, n := range counts {
		if left -= int64(n); left <= 0 {
			sum.P99 = min(sum.Most, delayBound(i))
			break
		}
	}
	return sum
}

// delayBucket returns the bucket of a delay: eight for each power of two microseconds.
func delayBucket(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < 8 {
		return int(us)
	}
	shift := bits.Len64(us) - 4
	return 8*(shift+1) + int(us>>shift)&7
}

// delayBound returns the end of a bucket.
func delayBound(bucket int) time.Duration {
	if bucket < 8 {
		return time.Duration(bucket+1) * time.Microsecond
	}
	shift := bucket/8 - 1
	return time.Duration(9+bucket%8) << shift * time.Microsecond
}
