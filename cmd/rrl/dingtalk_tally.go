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

// A dingRow is the fleet, Redis and the gateway at one instant. Its counts are those of the gateway's
// ledger, or what was added to them since another row.
type dingRow struct {
	At       time.Duration
	Sent     []int64 // by service: calls that left
	Waiting  int64   // calls that wait for their permits
	Free     int64   // permits of the address in Redis, -1 when there is no such limiter
	CoolDown time.Duration
	Calls    int64
	Admitted int64
	Refused  int64
	// Penalties, Most and Limit are always totals: penalties that calls brought about, and the most
	// calls of an API in any second.
	Penalties int64
	Most      int
	Limit     int
	Banned    time.Duration // what is left of the address's ban
}

// A dingLook takes the rows.
type dingLook struct {
	begin time.Time
	gate  func() *dinggate.Gate
	fleet *dingFleet
	own   *ratelimiter.Client
	last  dingRow
}

// reset begins a part.
func (l *dingLook) reset() { l.last = l.row(l.gate().Ledger()) }

// now is the present. What Redis does not say within a tick it has not said.
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
		Calls: ledger.Total.Calls, Admitted: ledger.Total.Admitted, Refused: ledger.Total.Refused,
		Penalties: dingPenalties(ledger), Most: dingMost(ledger),
	}
	for i := range l.fleet.sent {
		r.Sent = append(r.Sent, l.fleet.sent[i].Load())
	}
	outside := l.fleet.outside.Load() // first: a call that leaves in between waits no longer
	r.Waiting = max(0, l.fleet.inside.Load()-outside)
	for _, p := range ledger.Penalties {
		if p.Outside && p.Until.After(ledger.Now) {
			r.Banned = p.Until.Sub(ledger.Now)
		}
	}
	return r
}

// since is r with the counts since the last call, or since the part began.
func (l *dingLook) since(r dingRow) dingRow {
	before := l.last
	l.last = r
	r.Calls -= before.Calls
	r.Admitted -= before.Admitted
	r.Refused -= before.Refused
	return r
}

// dingLimit is how many calls a second the gateway takes of an application and an API.
var dingLimit = dinggate.Standard().AppAPI.Calls

// dingPenalties are those that the fleet's own calls brought about.
func dingPenalties(l dinggate.Ledger) int64 {
	n := l.Total.Penalties
	for _, p := range l.Penalties {
		if p.Outside {
			n--
		}
	}
	return n
}

// dingMost is the most calls of an API in any second.
func dingMost(l dinggate.Ledger) (most int) {
	for _, k := range l.Keys {
		if k.Dimension == dinggate.DimAppAPI {
			most = max(most, k.Worst)
		}
	}
	return most
}

// A dingSummary is how a demo ended.
type dingSummary struct {
	At      time.Duration
	Parts   dingParts
	Without dinggate.Ledger // at the end of the part without a limiter
	With    dinggate.Ledger // when the ban began
	End     dinggate.Ledger // of the same gateway as With
	Ban     dingBanRecord
	Margin  time.Duration
	Slowest time.Duration // call to the gateway, with the limiter
	Err     error         // why the demo failed; nil when it did not
}

// share is how much of the allowed rate was used before the ban, in percent.
func (s dingSummary) share() int {
	allowed := float64(dingLimit*len(dingAPIs)) * s.Parts.With.Seconds()
	return int(math.Round(100 * float64(s.With.Total.Admitted) / allowed))
}

// after is how many calls were admitted after the ban.
func (s dingSummary) after() int64 { return s.End.Total.Admitted - s.With.Total.Admitted }

// outside is the ban, as the gateway saw it.
func (s dingSummary) outside() (ban dinggate.Penalty) {
	for _, p := range s.End.Penalties {
		if p.Outside {
			ban = p
		}
	}
	return ban
}

// String is the verdict.
func (s dingSummary) String() string {
	return fmt.Sprintf("penalties: %d (without the limiter %d); most in any 1s: %d (limit %d); sent during the known ban: %d; %d%% of the allowed rate",
		dingPenalties(s.End), dingPenalties(s.Without), dingMost(s.End), dingLimit, s.Ban.Late, s.share())
}

// judged is s with the reason for which the demo failed, if it did. A run in which there was nothing to
// keep, or nothing was kept up, shows nothing: that is a failure too.
func (s dingSummary) judged() dingSummary {
	switch penalties := dingPenalties(s.End); {
	case s.Ban.Late > 0:
		s.Err = fmt.Errorf("calls sent although the ban was known: %d", s.Ban.Late)
	case penalties > 0 && s.Slowest-dingLeastDelay >= s.Margin:
		s.Err = fmt.Errorf("penalties with the limiter: %d; the delays of the calls differed by up to %v, and the margin is %v",
			penalties, ms(s.Slowest-dingLeastDelay), s.Margin)
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
