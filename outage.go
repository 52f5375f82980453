package ratelimiter

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
)

// An outage is what a process knows of a Redis that is away. While it lasts one call at a time probes
// it, about once a second; the others do not reach the network.
type outage struct {
	mu       sync.Mutex
	err      error         // why; nil while Redis is there
	since    time.Time     // when it became known
	next     time.Time     // the next probe
	over     chan struct{} // closed when Redis is back
	degraded int64         // requests that a policy granted
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
	if o.due() {
		return o.next, nil, nil
	}
	return o.next, o.over, o.err
}

// claim says whether the caller is to make a probe now.
func (o *outage) claim() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil && o.due()
}

// due takes the next probe, if it is time for it. The lock is held.
func (o *outage) due() bool {
	now := time.Now()
	if now.Before(o.next) {
		return false
	}
	o.next = now.Add(probePause())
	return true
}

// look is enter for who does not ask: it leaves the probe to others.
func (o *outage) look() (next time.Time, over <-chan struct{}, away bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next, o.over, o.err != nil
}

// away says that Redis did not run a call, however often it was sent. It answers whether that is news.
func (o *outage) away(err error) (began bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if began = o.err == nil; began {
		o.over = make(chan struct{})
		o.since, o.degraded = time.Now(), 0
	}
	o.err = err
	o.next = time.Now().Add(probePause())
	return began
}

// there says that Redis answered. It answers whether that is news, and what the outage was.
func (o *outage) there() (ended bool, lasted time.Duration, degraded int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return false, 0, 0
	}
	o.err = nil
	close(o.over)
	return true, time.Since(o.since), o.degraded
}

// known says whether Redis is known to be away.
func (o *outage) known() bool {
	_, err := o.begun()
	return err != nil
}

// begun says since when Redis is known to be away, and why; err is nil while it is there.
func (o *outage) begun() (since time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since, o.err
}

// granted counts a request that a policy granted.
func (o *outage) granted() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.degraded++
}

func probePause() time.Duration { return probeEvery + rand.N(probeEvery/4) }

// outage is that of the Redis in which l lives: of a ring its shard. Which node of a cluster that is, this
// package does not know, nor always which shard: then it is that of l and those whose names hash alike.
func (l *RateLimiter) outage() *outage {
	c := l.client
	if !c.sharded {
		return &c.outage
	}
	shard, ok := redisscript.ShardOf(c.rdb, l.keys.hash)
	if !ok {
		return &l.bucket.outage
	}
	o, ok := c.shards.Load(shard)
	if !ok {
		o, _ = c.shards.LoadOrStore(shard, new(outage))
	}
	return o.(*outage)
}

// away and there tell the observer what is news.
func (l *RateLimiter) away(err error) {
	if l.outage().away(err) {
		l.client.observe(Event{Kind: OutageBegan, Limiter: l.name, Time: time.Now(), Err: err})
	}
}

func (l *RateLimiter) there() {
	if ended, lasted, degraded := l.outage().there(); ended {
		l.client.observe(Event{Kind: OutageEnded, Limiter: l.name, Time: time.Now(), Duration: lasted, Degraded: degraded})
	}
}
