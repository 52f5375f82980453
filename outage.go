package ratelimiter

import (
	"math/rand/v2"
	"sync"
	"time"
)

// An outage is what a process knows of a Redis that is away. While it lasts one call at a time probes
// it, about once a second; the others do not reach the network.
type outage struct {
	mu   sync.Mutex
	err  error         // why; nil while Redis is there
	next time.Time     // the next probe
	over chan struct{} // closed when Redis is back
}

// probeEvery is the pause between two probes, and up to a quarter more.
const probeEvery = time.Second

// enter says whether a call may be made now: err is nil. Otherwise err is why Redis is away, and the
// caller may try again at next, or as soon as over is closed. While Redis is there next is zero; when
// err is nil and it is not, the call is the probe.
func (o *outage) enter() (next time.Time, over <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return time.Time{}, nil, nil
	}
	if now := time.Now(); !now.Before(o.next) {
		o.next = now.Add(probePause())
		return o.next, nil, nil
	}
	return o.next, o.over, o.err
}

// away says that Redis did not run a call, however often it was sent.
func (o *outage) away(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.over = make(chan struct{})
	}
	o.err = err
	o.next = time.Now().Add(probePause())
}

// there says that Redis answered.
func (o *outage) there() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		o.err = nil
		close(o.over)
	}
}

// known says whether Redis is known to be away.
func (o *outage) known() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

func probePause() time.Duration { return probeEvery + rand.N(probeEvery/4) }

func (l *RateLimiter) outage() *outage {
	if l.client.sharded {
		return &l.bucket.outage
	}
	return &l.client.outage
}
