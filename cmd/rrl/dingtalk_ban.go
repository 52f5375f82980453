// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/dinggate"
)

// dingUnderWay is how long after the beginning of the cool-down a call may leave without being late: the
// reply that granted its permit may have been under way.
const dingUnderWay = 50 * time.Millisecond

// A dingBan observes how the services react to one ban, by the instants at which their calls leave. Its
// methods are safe for concurrent use and do nothing before the ban.
type dingBan struct {
	mu     sync.Mutex
	rec    dingBanRecord
	unsaid []dingNews
}

// A dingBanRecord is what a dingBan observed. An instant that has not come is zero.
type dingBanRecord struct {
	Start, Until time.Time // by the gateway
	Met          time.Time // the first service was told of the ban
	Known        time.Time // the cool-down in Redis began
	Resumed      time.Time // the first call after the ban left
	Late         int       // calls that left between Known and Until although there were no permits
}

type dingNews struct {
	kind string
	at   time.Time
	text string
}

// begin makes the gateway ban the address.
func (b *dingBan) begin(gate *dinggate.Gate, length time.Duration) error {
	b.mu.Lock() // so that met waits until the ban is recorded
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

// left records that a call left.
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

// met records a response which says that the address is banned.
func (b *dingBan) met(service, reason string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rec.Met.IsZero() && !b.rec.Start.IsZero() {
		b.rec.Met = now
		b.say("met", now, "%s meets the ban: %s", service, reason)
	}
}

// known records that a cool-down began in Redis.
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

// news returns what happened since the last call.
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

// ms returns d rounded to milliseconds.
func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
