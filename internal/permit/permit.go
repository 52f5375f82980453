// Package permit has the values that cross the borders of this module: what is asked of a limiter, and what it
// replies. They carry no behaviour but how they print.
package permit

import (
	"fmt"
	"strconv"
	"time"
)

// Max is the most permits that a member of the permits set can hold: an unsigned 32-bit number in every
// Redisson version.
const Max = 1<<32 - 1

// A Type says whether all clients share the permits or each has its own.
type Type int

const (
	Overall Type = iota
	PerClient
)

// String returns the type as Redisson names it.
func (t Type) String() string {
	switch t {
	case Overall:
		return "OVERALL"
	case PerClient:
		return "PER_CLIENT"
	}
	return "RateType(" + strconv.Itoa(int(t)) + ")"
}

// Other returns the type that t is not.
func (t Type) Other() Type { return 1 - t }

// A Rate is what a limiter allows.
type Rate struct {
	Type      Type
	Permits   int64
	Interval  time.Duration
	KeepAlive time.Duration
	MinGap    time.Duration
}

// String returns the rate as a log line wants it.
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

// An ID names a call, and each grant that it makes: it is the random part of the members that are written. Byte 7
// is the run of the call.
type ID [16]byte

// Run returns the ID of the i-th run.
func (id ID) Run(i int) ID {
	id[7] = byte(i)
	return id
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

// A Cursor is how far a walk over a large set has got.
type Cursor struct{ Members, Permits int64 }

// A Batch is one acquire call.
type Batch struct {
	Type    Type
	ID      ID
	Runs    []Run // 1 to MaxRuns
	Replay  bool  // it may have run before under ID
	InOrder bool  // no run is granted behind one that does not fit
	DryRun  bool  // nothing is taken
	Check   bool  // that the permits left and those in use make up the rate
	Lowered bool  // the rate was; with Check
	NoTTL   bool  // the limiter had none a moment ago
	At      time.Time
	Cursor  Cursor
	Share   Share // of callers that wait
}

// A Share is what a call of callers that wait may take beside other processes; On is false where nobody else
// may be there.
type Share struct {
	On     bool
	Grace  time.Duration // for which permits beyond May are left alone
	May    int64         // permits that it may take at once
	Age    int64         // of the oldest permits that it takes, ms since they fell due; -1 for none
	Wants  int           // permits that the first caller saves up, in 255ths of the rate
	Survey bool          // tell who holds the newest permits
}

// Next says how a call goes on.
type Next int64

const (
	Done  Next = iota // it is answered
	Rest              // more is granted to the same call sent again
	Audit             // permits have been lost or are too many: an audit first
	Walk              // no wait is known yet: again, from Cursor on
)

// A Reply is what an acquire call says.
type Reply struct {
	Granted   []int64 // requests, by run; -1 where the permits exceed the rate
	Wait      time.Duration
	Available int64
	Now       time.Time
	Rate      Rate
	Next      Next
	Cursor    Cursor
	Skew      time.Duration
	NoTTL     bool   // the limiter had none; false also where the call did not look
	Others    Others // where the call had a Share
}

// Others is what a call with a Share is told of those who take part.
type Others struct {
	Soon                time.Duration // until permits fall due that may be taken then
	Young               int64         // permits taken within their grace
	WireFound, WireLeft bool          // the tripwire was there, and is there now
	Mine, Java, Kin     int64         // permits among the newest members: this process', Redisson's, and those of others of this package
	Blocked             int64         // permits that a cool-down has not given back
	Waiting             []int64       // processes whose callers wait: the tag of each and what it wants
	Tags                []int64       // those that hold permits
}

// A Grant is permits that were granted to a call, of which Keep stay granted.
type Grant struct {
	ID      ID
	Permits int64
	Keep    int64
}

// A Part is what is asked of one limiter of several.
type Part struct {
	Limiter any // the limiter, as the package knows it that asks Redis
	Type    Type
	ID      ID // of the grant
	Permits int64
}

// A Reservation is permits that are held for a list of limiters until it has all.
type Reservation struct {
	Type   Type
	ID     ID
	Want   int64 // permits from now on
	Held   int64 // until now
	Whole  bool  // all or nothing
	Unsure bool  // it may hold others than Held: a call has been lost
}
