// SPDX-License-Identifier: Apache-2.0

// Package view says how a limiter stands, once for all that show it: the tables of rrl, its JSON, and the page.
package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// A Row is what a list shows of a limiter, or of one client of it. It is small, because a list may have many.
type Row struct {
	Name, Client, Node string
	Problem            string // why calls fail, or empty
	Why                string // what a caller waits for, in words
	At                 int64  // when it was read, in ms by the clock of Redis
	Rate               permit.Rate
	Used, Available    int64         // or survey.Unknown
	Wait               time.Duration // of a caller that asks for one permit; or survey.Unknown
	Queued             time.Duration // of a caller that comes behind those that wait; or survey.Unknown
	Waiting            int64         // callers of Go, as far as Redis tells
	Processes          int           // that have them
	TTL                time.Duration // -1 for none
	Members, Expired   int64
	CoolDown, Reopen   int64 // when they end, in ms; 0 for none
	LastGrant          int64 // in ms; 0 if there is none
	State              Flags
	By                 Writers
	Kind               survey.Kind
}

// Flags are what a list can be narrowed down to.
type Flags uint8

const (
	Limited   Flags = 1 << iota // a caller waits or is rejected
	Stuck                       // calls of Redisson fail
	Cooling                     // a cool-down
	Malformed                   // calls fail: the hash is not that of a limiter, or a key is of another type
	PerClient                   // and it is not the row of a client
	Queue                       // callers wait
	Quota                       // its interval is so long that callers do not wait for it
	Gone                        // it was deleted after it was found
)

// Writers are who has written the members that were looked at.
type Writers uint8

const (
	ByGo Writers = 1 << iota
	ByJava
)

// String returns the names of the writers.
func (w Writers) String() string { return [...]string{"", "Go", "Java", "Go, Java"}[w&(ByGo|ByJava)] }

// WriterOf tells who has written a member, if it is a grant.
func WriterOf(m survey.Member) Writers {
	switch {
	case m.Mark() == 't' || m.Layout() == wire.LayoutUnknown: // a mark of Go on somebody's grant
		return 0
	case m.Layout() == wire.LayoutOurs || m.Mark() != 0:
		return ByGo
	}
	return ByJava
}

// quota is from which interval on a limiter counts as a quota: a caller of a used-up one is rejected, or gives up, long before.
const quota = time.Hour

// RowOf returns the row of a limiter.
func RowOf(l *survey.Limiter) Row {
	w := l.Waiting()
	r := Row{Name: l.Name, Client: l.ClientID, Node: l.Node, Kind: l.Kind, At: l.Time.UnixMilli(), Rate: l.Rate, Why: l.Why(), Used: l.Used(), Available: l.Available(),
		Wait: l.Wait(), Queued: l.Queued(), Waiting: w.Callers, Processes: len(w.Processes), TTL: l.TTLs[0], Members: l.Count, Expired: l.Expired}
	switch {
	case l.Problem != nil:
		if r.Problem = survey.OneLine(l.Problem); l.Kind != survey.Hidden {
			r.State |= Malformed
		}
	case l.Broken != nil:
		r.Problem = survey.OneLine(l.Broken)
		r.State |= Malformed
	case l.Rate.Type == permit.PerClient && l.ClientID == "":
		r.State |= PerClient
	}
	for flag, is := range map[Flags]bool{Limited: l.Limited() || !l.CoolDown().IsZero() || w.Callers > 0, Stuck: l.Stuck(), Cooling: !l.CoolDown().IsZero(),
		Queue: w.Callers > 0, Quota: l.Problem == nil && l.Rate.Interval >= quota} {
		if is {
			r.State |= flag
		}
	}
	if at := l.CoolDown(); !at.IsZero() {
		r.CoolDown = at.UnixMilli()
		if reopen := l.ReopenUntil(); reopen.After(at) {
			r.Reopen = reopen.UnixMilli()
		}
	}
	for _, m := range l.State.Members {
		r.By |= WriterOf(m)
	}
	if m := l.Newest(); m != nil {
		if at, ok := m.Granted(); ok {
			r.LastGrant = at.UnixMilli()
		}
	}
	return r
}

// Is reports whether r has one of the flags.
func (r *Row) Is(f Flags) bool { return r.State&f != 0 }

// Share returns how much of the rate was used in the last interval, from 0 to 1; 0 if that is not known.
func (r *Row) Share() float64 {
	if r.Used <= 0 || r.Rate.Permits <= 0 {
		return 0
	}
	return min(1, float64(r.Used)/float64(r.Rate.Permits))
}

// PerSecond returns how many permits a second the rate has.
func (r *Row) PerSecond() float64 {
	if r.Rate.Interval <= 0 {
		return 0
	}
	return float64(r.Rate.Permits) / r.Rate.Interval.Seconds()
}

// Granted returns how many permits were granted in a second, on the average of the last interval.
func (r *Row) Granted() float64 { return r.Share() * r.PerSecond() }

// Harm returns how much callers suffer: how many wait, times how many intervals they take. Each is taken to ask for one permit.
func (r *Row) Harm() float64 {
	return float64(r.Waiting) * (1 + float64(r.Waiting)/float64(max(1, r.Rate.Permits)))
}

// rank orders limiters by what callers meet: calls that fail, callers that wait, a cool-down, a limit, a used-up quota.
func (r *Row) rank() int {
	for i, is := range []bool{r.Is(Stuck | Malformed), r.Waiting > 0, r.Is(Cooling), r.Is(Limited) && !r.Is(Quota), r.Is(Limited)} {
		if is {
			return i
		}
	}
	return 5
}

// An Order compares two rows.
type Order func(a, b *Row) int

// Orders are the columns by which a list can be sorted. Those of numbers begin with the largest. Rows that are equal by the column are in
// the order of their names.
var Orders = map[string]Order{
	"harm": named(func(a, b *Row) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.Harm(), a.Harm()), cmp.Compare(max(0, b.Wait), max(0, a.Wait)),
			cmp.Compare(b.Share(), a.Share()))
	}),
	"name": named(func(*Row, *Row) int { return 0 }),
	"rate": named(func(a, b *Row) int { return cmp.Compare(b.PerSecond(), a.PerSecond()) }),
	"used": named(func(a, b *Row) int { return cmp.Or(cmp.Compare(b.Share(), a.Share()), cmp.Compare(b.Used, a.Used)) }),
	"wait": named(func(a, b *Row) int {
		return cmp.Or(cmp.Compare(b.State&(Stuck|Malformed), a.State&(Stuck|Malformed)), cmp.Compare(max(0, b.Queued), max(0, a.Queued)))
	}),
	"waiting": named(func(a, b *Row) int { return cmp.Compare(b.Waiting, a.Waiting) }),
	"granted": named(func(a, b *Row) int { return cmp.Compare(b.Granted(), a.Granted()) }),
	"ttl":     named(func(a, b *Row) int { return cmp.Compare(b.TTL, a.TTL) }),
	"members": named(func(a, b *Row) int { return cmp.Compare(b.Members, a.Members) }),
}

func named(by Order) Order {
	return func(a, b *Row) int { return cmp.Or(by(a, b), strings.Compare(a.Name, b.Name)) }
}

// Sort sorts rows.
func Sort(rows []Row, by Order) { slices.SortFunc(rows, func(a, b Row) int { return by(&a, &b) }) }

// Headline says in one sentence what a caller that comes now meets.
func (r *Row) Headline() doctor.Text {
	switch {
	case r.Kind == survey.Remains:
		return say("there is no limiter of this name: its hash is gone")
	case r.Kind == survey.Hidden:
		return say("it cannot be read: %s", doctor.Word(r.Problem))
	case r.Is(Malformed):
		return say("every call fails: %s", doctor.Word(r.Problem))
	case r.Is(Stuck):
		return say("stuck: calls of Redisson fail until Go, or rrl heal, has repaired it")
	case r.Is(PerClient) && !r.Is(Cooling) && r.Waiting == 1:
		return say("1 caller waits; each client has permits of its own")
	case r.Is(PerClient) && !r.Is(Cooling) && r.Waiting > 0:
		return say("%d callers wait; each client has permits of its own", r.Waiting)
	case r.Is(PerClient) && !r.Is(Cooling):
		return say("each client has permits of its own")
	case r.Wait == survey.Unknown:
		return say("not known: the set is too large")
	case r.Waiting == 1 && r.Queued > 0:
		return say("1 caller waits; a new caller waits about %s", survey.Brief(r.Queued))
	case r.Waiting > 0 && r.Queued > 0:
		return say("%d callers wait; a new caller waits about %s", r.Waiting, survey.Brief(r.Queued))
	case r.Wait > 0:
		return say("a permit is available in %s, because of %s", survey.Brief(r.Wait), doctor.Word(r.Why))
	}
	return say("one permit is granted at once")
}

func say(format string, args ...any) doctor.Text { return doctor.Say(format, args...) }

// A Summary is how a limiter stands, in JSON.
type Summary struct {
	Name       string     `json:"name"`
	NameBase64 string     `json:"name_base64,omitempty"` // the name, if it has bytes that cannot be printed: for --base64
	Client     string     `json:"client,omitempty"`      // whose permits these are, of a PER_CLIENT limiter
	Kind       string     `json:"kind"`                  // limiter, remains of one, hidden by the ACL, or told: the note beside one in a cool-down
	Node       string     `json:"node"`                  // the server that holds it
	TimeMS     int64      `json:"time_ms"`               // when it was read, by the clock of Redis
	Headline   string     `json:"headline"`              // what a new caller meets, in English
	Problem    string     `json:"problem,omitempty"`     // why calls fail
	Stuck      bool       `json:"stuck,omitempty"`       // calls of Redisson fail; see doctor
	Quota      bool       `json:"quota,omitempty"`       // the interval is an hour or longer
	Type       string     `json:"type,omitempty"`        // OVERALL or PER_CLIENT
	Permits    int64      `json:"permits,omitempty"`     // in any interval
	IntervalMS int64      `json:"interval_ms,omitempty"`
	KeepAlive  int64      `json:"keep_alive_ms,omitempty"`
	MinGapMS   int64      `json:"min_gap_ms,omitempty"`
	Used       *int64     `json:"used,omitempty"`               // of the permits; not of a PER_CLIENT limiter as a whole
	Share      *float64   `json:"used_share,omitempty"`         // of the rate in the last interval, 0 to 1
	PerSecond  *float64   `json:"granted_per_second,omitempty"` // permits, on the average of the last interval
	Available  *int64     `json:"available,omitempty"`
	WaitMS     *int64     `json:"wait_ms,omitempty"`            // of one permit, if nobody waited
	WaitsFor   string     `json:"waits_for,omitempty"`          // because of what
	Waiting    int64      `json:"waiting"`                      // callers of Go that wait; those of Java leave no trace
	Processes  int        `json:"waiting_processes,omitempty"`  // in which they wait
	QueuedMS   *int64     `json:"new_caller_wait_ms,omitempty"` // about, behind those that wait
	CoolDown   *time.Time `json:"cool_down_until,omitempty"`
	Reopen     *time.Time `json:"reopen_until,omitempty"`
	TTLMS      *int64     `json:"ttl_ms,omitempty"` // of the hash; absent for a limiter that does not expire
	Members    int64      `json:"members"`
	Expired    int64      `json:"expired_members"`
	LastGrant  *time.Time `json:"last_grant,omitempty"`
	By         string     `json:"by,omitempty"` // Go, Java: who has written the members that were looked at
}

// Summary returns r in JSON.
func (r *Row) Summary() Summary {
	s := Summary{Client: r.Client, Kind: r.Kind.String(), Node: r.Node, TimeMS: r.At, Headline: r.Headline().String(), Problem: r.Problem, Stuck: r.Is(Stuck), Quota: r.Is(Quota),
		WaitsFor: r.Why, Waiting: r.Waiting, Processes: r.Processes, Members: r.Members, Expired: r.Expired, By: r.By.String(),
		Used: number(r.Used), Available: number(r.Available), WaitMS: roundUp(r.Wait), QueuedMS: roundUp(r.Queued), CoolDown: instant(r.CoolDown), Reopen: instant(r.Reopen),
		LastGrant: instant(r.LastGrant)}
	s.Name, s.NameBase64 = r.Name, survey.Base64(r.Name)
	if r.Rate.Permits > 0 {
		s.Type, s.Permits, s.IntervalMS, s.MinGapMS = r.Rate.Type.String(), r.Rate.Permits, r.Rate.Interval.Milliseconds(), r.Rate.MinGap.Milliseconds()
		s.KeepAlive = r.Rate.KeepAlive.Milliseconds()
	}
	if r.Used != survey.Unknown {
		share, granted := r.Share(), r.Granted()
		s.Share, s.PerSecond = &share, &granted
	}
	if r.TTL >= 0 {
		s.TTLMS = number(r.TTL.Milliseconds())
	}
	return s
}

func number(n int64) *int64 {
	if n == survey.Unknown {
		return nil
	}
	return &n
}

func roundUp(d time.Duration) *int64 {
	if d == survey.Unknown {
		return nil
	}
	ms := (d + time.Millisecond - 1).Milliseconds()
	return &ms
}

// moment returns an instant that JSON can have, whose years are 0 to 9999. What lies in a key may be any number.
func moment(at time.Time) time.Time {
	at = at.UTC()
	first, last := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	switch {
	case at.Before(first):
		return first
	case at.After(last):
		return last
	}
	return at
}

func instant(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	at := moment(time.UnixMilli(ms))
	return &at
}
