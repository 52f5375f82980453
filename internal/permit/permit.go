// SPDX-License-Identifier: Apache-2.0

// Package permit defines the values that the packages of this module exchange: what is asked of a limiter, and
// what the limiter replies. They have no behaviour except that they print and count. The errors that several packages
// return are made here, so that they read alike.
package permit

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Max is the largest number of permits that a member of the permits set can hold, an unsigned 32-bit number in
// every Redisson version.
const Max = 1<<32 - 1

// A Type tells whether all clients share the permits or each client has its own.
type Type int

const (
	Overall Type = iota
	PerClient
)

// String returns the name that Redisson uses.
func (t Type) String() string {
	switch t {
	case Overall:
		return "OVERALL"
	case PerClient:
		return "PER_CLIENT"
	}
	return "RateType(" + strconv.Itoa(int(t)) + ")"
}

// Other returns the other type.
func (t Type) Other() Type { return 1 - t }

// A Rate is what a limiter allows.
type Rate struct {
	Type      Type
	Permits   int64
	Interval  time.Duration
	KeepAlive time.Duration
	MinGap    time.Duration
}

// String returns the rate in a form for log lines.
func (r Rate) String() string {
	s := fmt.Sprintf("%s %d/%v", r.Type, r.Permits, r.Interval)
	if r.KeepAlive != 0 {
		s += fmt.Sprintf(" keep-alive %v", r.KeepAlive)
	}
	if r.MinGap != 0 {
		s += fmt.Sprintf(" gap %v", r.MinGap)
	}
	return s
}

// units are the names of intervals beside those of [time.ParseDuration], as durations of it. No plural is among them: "10/2days" is
// hardly ever what somebody means.
var units = map[string]string{"sec": "s", "second": "s", "min": "m", "minute": "m", "hr": "h", "hour": "h", "d": "24h", "day": "24h"}

// ParsePace returns the numbers of a rate in the form "100/1m30s", "10/s" or "1000/day".
func ParsePace(text string) (permits int64, interval time.Duration, err error) {
	count, per, ok := strings.Cut(text, "/")
	if !ok {
		return 0, 0, fmt.Errorf("%w: the rate %q is not in the form 10/s, 100/1m30s or 1000/day", ErrInvalidArgument, Shorten(text))
	}
	if permits, err = strconv.ParseInt(count, 10, 64); err != nil {
		return 0, 0, fmt.Errorf("%w: the rate %q does not begin with a number of permits, as 10/s does", ErrInvalidArgument, Shorten(text))
	}
	digits := len(per) - len(strings.TrimLeft(per, "0123456789"))
	n, unit := int64(1), per[digits:]
	if digits > 0 {
		n, err = strconv.ParseInt(per[:digits], 10, 64)
	}
	if known, ok := units[unit]; ok {
		unit = known
	} else if digits > 0 && strings.ContainsAny(unit, ".0123456789") { // of several units
		n, unit = 1, per
	}
	if !strings.ContainsAny(unit, "0123456789") {
		unit = "1" + unit
	}
	interval, wrong := time.ParseDuration(unit)
	if err != nil || wrong != nil || n > 0 && interval > math.MaxInt64/time.Duration(n) {
		return 0, 0, fmt.Errorf("%w: the interval of the rate %q is not one such as s, min, hour, day, 10s or 1m30s", ErrInvalidArgument, Shorten(text))
	}
	return permits, time.Duration(n) * interval, nil
}

// An ID identifies a call and, through [ID.Run], each grant that the call makes. It is the random part of the
// members that the call writes. Byte 7 is the number of the run.
type ID [16]byte

// Run returns the ID of the i-th run.
func (id ID) Run(i int) ID {
	id[7] = byte(i)
	return id
}

// A Call describes an attempt at a script call, for the hooks of a client.
type Call struct {
	Script   string
	Limiter  string // the first, if there are several
	Requests int64  // that share the call
	Duration time.Duration
	Refunded int64 // permits that it gave back
	Healed   Healed
	Err      error
}

// Healed is what a call healed of the state of a limiter, in permits.
type Healed struct {
	Value   int64 // the rate, when the number of permits left was lost
	Lost    int64 // that were neither left nor in use
	Surplus int64 // beyond the rate
	Clock   int64 // of grants that were found ahead of the clock for the first time
}

// A Run is a number of equal requests.
type Run struct {
	Permits int64 // each
	Count   int64
}

// MaxRuns and MaxRequests bound a Batch, because a replay has to look for each of them.
const (
	MaxRuns     = 128
	MaxRequests = 1024
)

// A Cursor tells how far a walk over a large set has got.
type Cursor struct{ Members, Permits int64 }

// A Batch is one acquire call.
type Batch struct {
	Type      Type
	ID        ID
	Runs      []Run     // 1 to MaxRuns of them
	Floor     int64     // permits that are to stay free, for requests of a lower class
	Replay    bool      // the call may have been executed before, under the same ID
	InOrder   bool      // a run that does not fit blocks those behind it
	DryRun    bool      // take no permits
	Renew     bool      // keep the limiter alive as a call that takes permits does; with DryRun
	Alone     bool      // an attempt before this one got no reply: it shares no round trip, so that others cannot break it
	Check     HealCause // check that the permits left and those in use add up to the rate, for this reason
	Healed    bool      // the limiter has just been healed, so that the reply is not Heal again
	At        time.Time // date the grant back to this instant; zero for now
	Cursor    Cursor
	Allowance Allowance // for callers that wait
	Room      []int64   // memory for Granted of the reply; may be nil
}

// Requests returns how many requests are in the batch.
func (b *Batch) Requests() (n int64) {
	for _, r := range b.Runs {
		n += r.Count
	}
	return n
}

// An Allowance is what a call for callers that wait may take beside other processes. On is false if no other process
// can be competing.
type Allowance struct {
	On     bool
	Grace  time.Duration // how long permits that expire are left to others
	May    int64         // permits within their grace that the call may take all the same
	Survey bool          // report who holds the newest permits
	// Waiting is how many callers of the process wait, for operators. Nothing is decided by it.
	Waiting int
	// NoteFor is for how long Redis is to note Waiting where no tripwire says it, as in a cool-down; 0 for not at all.
	NoteFor time.Duration
}

// Next tells how a call goes on.
type Next int64

const (
	Done Next = iota // the reply is complete
	On               // the same call, sent again with the Cursor, is granted more or tells the wait
	Heal             // the limiter is to be healed first
)

// A HealCause tells why a limiter is checked and healed.
type HealCause int

const (
	Unchecked HealCause = iota // a call is not to check; what is healed was found otherwise
	Checked                    // the state is checked now and then
	Believed                   // whoever asks for it believes the grants, as after a lower rate: what is left goes first
	Ordered                    // by an operator: as Believed, and what has expired goes
)

// A Reply is the reply to an acquire call.
type Reply struct {
	Granted   []int64 // requests granted, by run; -1 if the permits exceed the rate
	Wait      time.Duration
	Available int64
	Now       time.Time
	Rate      Rate
	Next      Next
	Cursor    Cursor
	Skew      time.Duration
	Others    Others // if the call had an Allowance
	// Context is that in which the call was made, the first of its requests', which the engine fills in.
	Context context.Context
}

// Taken returns how many permits were granted to runs, whose reply it is.
func (a *Reply) Taken(runs []Run) (permits int64) {
	for i, n := range a.Granted {
		permits += max(0, n) * runs[i].Permits
	}
	return permits
}

// Others is what a call with an Allowance found out about other processes.
type Others struct {
	Soon                time.Duration // until permits expire that this process may take
	WireFound, WireLeft bool          // whether the tripwire was there, and whether it is there now
	// Permits among the newest members, held by this process, by Redisson, and by other processes of this package.
	Mine, Java, Kin int64

	Blocked int64   // permits that a cool-down has not given back yet
	Waiting []int64 // tags of the processes whose callers wait
}

// A Grant is a number of permits that were granted to a call. Keep of them stay granted when the rest is refunded;
// Keep may be more than Permits.
type Grant struct {
	ID      ID
	Permits int64
	Keep    int64
}

// A Limiter holds the permits of one limiter; the package that talks to Redis implements it.
type Limiter interface {
	// Acquire makes one attempt at b.
	Acquire(ctx context.Context, b *Batch) (Reply, error)
}

// A Part asks for permits of one limiter in a call for several.
type Part struct {
	Limiter Limiter
	Type    Type
	ID      ID // of the grant
	Permits int64
	Floor   int64 // permits that are to stay free
}

// A Reservation holds permits of one limiter for a caller that waits for more permits than are free, or for other
// limiters. It holds all that are wanted or, unless it is ahead, what it held.
type Reservation struct {
	Type   Type
	ID     ID
	Want   int64         // permits to hold from now on
	Held   int64         // permits held until now
	Unsure bool          // a call has been lost, so the number held may differ from Held
	Ahead  bool          // take them before they have come back, so that nobody else takes them when they do
	Waited time.Duration // with Ahead: for how long the caller had waited at its first call
	Part   bool          // with Ahead: it is a part of what the caller wants of several limiters
}

// A Reserved is the reply to a Reservation.
type Reserved struct {
	Held    int64
	Lacking int64         // of a Reservation with Ahead, permits that have yet to come back
	Wait    time.Duration // until they have, or until it is worth while to ask again; 0 if not known
	Place   int64         // of a Reservation with Ahead, among those that take permits ahead; 0 for none
	Rate    Rate          // without its type
}
