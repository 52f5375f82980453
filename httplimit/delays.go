// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"sync"
	"time"
)

// DelaySpread returns by how much the delays of the recent requests to host differ, and how many requests these were. A delay
// is the time from the moment at which the permits were granted to the header of the response, and recent are the last one
// to two minutes. The host is in lower case and without a port. Requests that matched no rule, and those without a response,
// do not count. A Transport measures up to 256 hosts at a time.
//
// A limiter decides when requests leave, whereas the platform counts them when they arrive. The platform's limit
// holds if the delays of any two requests on their way differ by no more than the limiter's window is longer than the
// platform's. That difference cannot be measured from here; the spread is how far whole round trips differ, which
// is more. Use it to choose a profile's WithMargin, or the interval of a rule of your own.
func (t *Transport) DelaySpread(host string) (spread time.Duration, requests int64) {
	if !t.made() {
		return 0, 0
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
	requests    int64
	least, most time.Duration
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
		h = &delaysOfHost{least: d, most: d}
		s.young[host] = h
	}
	h.requests++
	h.least, h.most = min(h.least, d), max(h.most, d)
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

func (s *delays) of(host string, now time.Time) (spread time.Duration, requests int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	var all delaysOfHost
	for _, h := range []*delaysOfHost{s.old[host], s.young[host]} {
		if h == nil {
			continue
		}
		if all.requests == 0 {
			all.least = h.least
		}
		all.requests += h.requests
		all.least, all.most = min(all.least, h.least), max(all.most, h.most)
	}
	return all.most - all.least, all.requests
}
