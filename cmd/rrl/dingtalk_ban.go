package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/dinggate"
)

// dingUnderWay is for how long after Redis took the cool-down a call may leave whose permit it had given
// before: the answer with the permit was on its way.
const dingUnderWay = 50 * time.Millisecond

// A dingBan watches what the services do about one ban, from the instants at which their calls leave.
// Its methods are safe for concurrent use; before the ban they do nothing.
type dingBan struct {
	mu     sync.Mutex
	rec    dingBanRecord
	unsaid []dingNews
}

// A dingBanRecord is what a dingBan saw. An instant that has not come is zero.
type dingBanRecord struct {
	Start, Until time.Time // by the gateway
	Met          time.Time // the first service read of the ban
	Known        time.Time // Redis holds everybody back
	Resumed      time.Time // the first call after the ban left
	Late         int       // calls that left between Known and Until, which nobody should have sent
}

type dingNews struct {
	kind string
	at   time.Time
	text string
}

// begin has the gateway ban the address.
func (b *dingBan) begin(gate *dinggate.Gate, length time.Duration) error {
	b.mu.Lock() // so that nobody meets a ban that has not begun here
	defer b.mu.Unlock()
	if err := gate.Ban(dinggate.DimIP, dingAddress, length); err != nil {
		return err
	}
	for _, p := range gate.Ledger().Penalties {
		if p.Outside {
			b.rec.Start, b.rec.Until = p.Start, p.Until
		}
	}
	return nil
}

// left is told of every call.
func (b *dingBan) left(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &b.rec
	switch {
	case r.Start.IsZero():
	case !now.Before(r.Until):
		if r.Resumed.IsZero() {
			r.Resumed = now
			b.say("resumed", now, "the first call since: %v after the ban ended", ms(now.Sub(r.Until)))
		}
	case !r.Known.IsZero() && now.After(r.Known.Add(dingUnderWay)):
		if r.Late++; r.Late == 1 {
			b.say("late", now, "a call was sent although the ban was known")
		}
	}
}

// met is told of every answer that says that the address is banned.
func (b *dingBan) met(service, reason string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rec.Met.IsZero() && !b.rec.Start.IsZero() {
		b.rec.Met = now
		b.say("met", now, "%s meets the ban: %s", service, reason)
	}
}

// known is told when Redis has taken a cool-down.
func (b *dingBan) known(limiter string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rec.Known.IsZero() && !b.rec.Start.IsZero() {
		b.rec.Known = now
		b.say("known", now, "%s cools down: the whole fleet is silent", limiter)
	}
}

func (b *dingBan) say(kind string, at time.Time, format string, args ...any) {
	b.unsaid = append(b.unsaid, dingNews{kind, at, fmt.Sprintf(format, args...)})
}

// news is what happened since it was asked last.
func (b *dingBan) news() []dingNews {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.unsaid
	b.unsaid = nil
	return n
}

func (b *dingBan) record() dingBanRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec
}

// ms is d for people.
func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
