// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dinggate"
)

// A dingRow is the state of the fleet, Redis and the gateway at one instant. Its counts are those of the
// gateway's ledger, or their increase since another row.
type dingRow struct {
	At       time.Duration
	Sent     []int64 // by service: calls that left
	Waiting  int64   // calls that wait for their permits
	Free     int64   // available permits of the address, -1 if it has no limiter
	CoolDown time.Duration
	Calls    int64
	Admitted int64
	Rejected int64
	// Penalties and Most are always totals: the penalties that calls caused, and the most calls of an API
	// in any second. Limit is how many of these are allowed.
	Penalties int64
	Most      int
	Limit     int
	Banned    time.Duration // the rest of the address's ban
}

// A dingLook collects rows.
type dingLook struct {
	begin time.Time
	gate  func() *dinggate.Gate
	fleet *dingFleet
	own   *ratelimiter.Client
	last  dingRow
}

// reset makes since count from now on.
func (l *dingLook) reset() { l.last = l.row(l.gate().Ledger()) }

// now returns the present row. It does not wait for Redis longer than a tick.
func (l *dingLook) now(ctx context.Context) dingRow {
	ctx, cancel := context.WithTimeout(ctx, dingTick)
	defer cancel()
	r := l.row(l.gate().Ledger())
	address := l.own.RateLimiter(dingAddressLimiter)
	if n, err := address.AvailablePermits(ctx); err == nil {
		r.Free = n
		if until, err := address.CoolDownUntil(ctx); err == nil && !until.IsZero() {
			r.CoolDown = time.Until(until)
		}
	}
	return r
}

func (l *dingLook) row(ledger dinggate.Ledger) dingRow {
	r := dingRow{
		At: ledger.Now.Sub(l.begin), Free: -1, Limit: dingLimit,
		Calls: ledger.Total.Calls, Admitted: ledger.Total.Admitted, Rejected: ledger.Total.Refused,
		Penalties: dingPenalties(ledger), Most: dingMost(ledger),
	}
	for i := range l.fleet.sent {
		r.Sent = append(r.Sent, l.fleet.sent[i].Load())
	}
	outside := l.fleet.outside.Load() // before inside, so that a call which leaves in between counts as waiting
	r.Waiting = max(0, l.fleet.inside.Load()-outside)
	for _, p := range ledger.Penalties {
		if p.Outside && p.Until.After(ledger.Now) {
			r.Banned = p.Until.Sub(ledger.Now)
		}
	}
	return r
}

// since returns r with the counts since the last call of since or reset.
func (l *dingLook) since(r dingRow) dingRow {
	before := l.last
	l.last = r
	r.Calls -= before.Calls
	r.Admitted -= before.Admitted
	r.Rejected -= before.Rejected
	return r
}

// dingLimit is how many calls a second the gateway allows for an application and an API.
var dingLimit = dinggate.Standard().AppAPI.Calls

// dingPenalties returns the number of penalties that the fleet's own calls caused.
func dingPenalties(l dinggate.Ledger) int64 {
	n := l.Total.Penalties
	for _, p := range l.Penalties {
		if p.Outside {
			n--
		}
	}
	return n
}

// dingMost returns the most calls of an API in any second.
func dingMost(l dinggate.Ledger) (most int) {
	for _, k := range l.Keys {
		if k.Dimension == dinggate.DimAppAPI {
			most = max(most, k.Worst)
		}
	}
	return most
}

// A dingSummary is the outcome of a demo.
type dingSummary struct {
	At      time.Duration
	Parts   dingParts
	Without dinggate.Ledger // at the end of the part without a limiter
	With    dinggate.Ledger // when the ban began
	End     dinggate.Ledger // of the same gateway as With
	Ban     dingBanRecord
	Margin  time.Duration
	Slowest time.Duration // the longest way of a call to the gateway, with the limiter
	Err     error         // why the demo failed, or nil
}

// share returns how much of the allowed rate was used before the ban, in percent.
func (s dingSummary) share() int {
	allowed := float64(dingLimit*len(dingAPIs)) * s.Parts.With.Seconds()
	return int(math.Round(100 * float64(s.With.Total.Admitted) / allowed))
}

// after returns how many calls were admitted after the ban.
func (s dingSummary) after() int64 { return s.End.Total.Admitted - s.With.Total.Admitted }

// outside returns the ban, as the gateway recorded it.
func (s dingSummary) outside() (ban dinggate.Penalty) {
	for _, p := range s.End.Penalties {
		if p.Outside {
			ban = p
		}
	}
	return ban
}

// String returns the verdict.
func (s dingSummary) String() string {
	return fmt.Sprintf("penalties: %d (without the limiter %d); most in any 1s: %d (limit %d); sent during the known ban: %d; %d%% of the allowed rate",
		dingPenalties(s.End), dingPenalties(s.Without), dingMost(s.End), dingLimit, s.Ban.Late, s.share())
}

// judged returns s with the reason why the demo failed, if it did. A run that shows nothing, because there
// were no penalties without the limiter or no calls with it, has failed, too.
func (s dingSummary) judged() dingSummary {
	switch penalties := dingPenalties(s.End); {
	case s.Ban.Late > 0:
		s.Err = fmt.Errorf("calls sent although the ban was known: %d", s.Ban.Late)
	case penalties > 0 && s.Slowest-dingLeastDelay >= s.Margin:
		s.Err = fmt.Errorf("penalties with the limiter: %d; the delays of the calls differed by up to %v, and the margin is %v%s",
			penalties, ms(s.Slowest-dingLeastDelay), s.Margin, s.advice())
	case penalties > 0:
		s.Err = fmt.Errorf("penalties with the limiter: %d", penalties)
	case dingPenalties(s.Without) == 0:
		s.Err = errors.New("there was no penalty without the limiter: the fleet was too slow to show anything")
	case s.Ban.Known.IsZero():
		s.Err = errors.New("nobody found out that the address was banned")
	case s.after() == 0:
		s.Err = errors.New("the fleet did not call again after the ban")
	}
	return s
}

// advice returns what to do about delays that have differed by more than the margin. Without a margin they were meant to.
func (s dingSummary) advice() string {
	larger := (s.Slowest - dingLeastDelay).Truncate(100*time.Millisecond) + 100*time.Millisecond
	switch {
	case s.Margin == 0:
		return ""
	case larger > time.Second:
		return "; this machine is too busy for the demo"
	}
	return fmt.Sprintf("; this machine is busy: try --margin %v", larger)
}
