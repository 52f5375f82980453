// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// An Algorithm is an algorithm of this package with its parameters: a [FixedWindow], [SlidingLog],
// [SlidingCounter], [CalendarQuota], [IntervalBucket], [TokenBucket], [DebtBucket], [GCRA], [LeakyQueue], [SmoothBursty]
// or [SmoothWarmingUp], or a pointer to one. [NewLocal] and [NewShared] return limiters that use it; they copy what it points to.
//
// The Rate of most is a number of permits, 1 to 2^32-1, in an interval, which is a whole number of microseconds and at most
// 50 years; its Type is Overall, and its KeepAlive and MinGap are 0. Instants are whole microseconds too: at a rate of more
// than one permit a microsecond, several are granted at one instant. ratelimiter.PerSecond, ratelimiter.Every and
// ratelimiter.ParseRate make such rates.
//
// The limiters count a rate exactly, with one exception. A bucket or a queue counts in fractions of a permit, and
// where the largest number that it needs, its capacity times the microseconds between two permits of the
// reduced rate, is above 2^52, it is refilled at the next lower rate that needs no such number. That is
// slower by less than a billionth. There always is such a rate for a capacity of up to four million permits that
// come in within 140 years, which at one permit a year are 140. A larger capacity that has none is rejected with
// ratelimiter.ErrInvalidArgument, as is a parameter that is out of its range; the error names it.
type Algorithm interface {
	// check returns an error if a parameter is out of its range. The others are called only if there is none.
	check() error
	bound(window time.Duration, n int64) int64 // see Bound
	model() model
}

// A model is an algorithm with its parameters, as a call needs to know it.
type model struct {
	script       *dispatch.Script
	parameters   []any                           // those of the script, beside those of config.command
	parametersAt func(now int64) []any           // those of a call at an instant in µs, and for some time around it; nil if they are always the same
	identity     []any                           // what is part of the keys in place of the parameters if they change with the time
	largest      int64                           // see Largest
	reserves     bool                            // it grants permits in advance
	idle         func() state                    // of a limiter that has not been used for long, or never
	stored       func(text string) (state, bool) // the state that the text in a reply of the script describes; false if no limiter writes it
}

// Bound returns the most permits that calls of at most n permits each are granted by the algorithm in any window of the
// given length, a whole number of microseconds. A window includes its first instant and excludes its last. Reserved
// permits count at the instant from which they may be used. An n above [Largest] is that. Bound is 0 if n or the window is not
// positive, and if a is one that [NewLocal] rejects, such as nil.
func Bound(a Algorithm, window time.Duration, n int64) int64 {
	of, err := checked(a)
	if err != nil || n < 1 {
		return 0
	}
	return of.bound(window, min(n, of.model().largest))
}

// Largest returns the most permits that one call can be granted by the algorithm. It is 0 if a is one that [NewLocal] rejects, such
// as nil.
func Largest(a Algorithm) int64 {
	of, err := checked(a)
	if err != nil {
		return 0
	}
	return of.model().largest
}

// checked returns a without a pointer to it, or an error if it is nil or has a parameter that is out of its range. Nobody can change
// what it returns.
func checked(a Algorithm) (Algorithm, error) {
	of := pointee(a)
	if of == nil {
		return nil, invalid("the algorithm is nil")
	}
	return of, of.check()
}

// pointee returns a without a pointer to it, and nil if that is nil.
func pointee(a Algorithm) Algorithm {
	v := reflect.ValueOf(a)
	switch {
	case v.Kind() != reflect.Pointer:
		return a
	case v.IsNil():
		return nil
	}
	return v.Elem().Interface().(Algorithm)
}

// A state is what a local limiter remembers, with the algorithm's arithmetic in Go. The script is the same
// arithmetic in Lua; TestLocalAndSharedAgree compares the two.
type state interface {
	// take decides on a demand, and takes the permits when it is granted and spend is set. It changes nothing
	// if spend is not set. Instants and durations are in µs.
	take(q demand, id epoch) decision
}

// A demand is what one call asks for.
type demand struct {
	now, n int64
	atMost int64 // how long the caller would wait for permits that are granted in advance
	spend  bool  // false for a Peek

	taken      *int64      // where the number of permits is put of a call that takes what there is, up to n; nil for others
	mark       *mark       // where the mark of a grant is put that is to be settled; nil for others
	settlement *settlement // settles a grant instead of asking for permits
}

// check returns an error if q cannot be granted, however long it waits.
func (q *demand) check(m *model) error {
	if q.n < 1 || q.n > maxPermits {
		return invalid("a call for %d permits is not in 1..%d", q.n, int64(maxPermits))
	}
	if q.taken == nil && q.n > m.largest {
		return fmt.Errorf("%w: a call for %d permits, where one call can get at most %d", ratelimiter.ErrPermitsExceedRate, q.n, m.largest)
	}
	return nil
}

// least returns the fewest permits that q is granted, if it is.
func (q *demand) least() int64 {
	if q.taken != nil {
		return 1
	}
	return q.n
}

type decision struct {
	granted                bool
	remaining, wait, reset int64
}

// marks has the mark of the grant of q put where the caller wants it, if it does.
func (q *demand) marks(m mark) {
	if q.mark != nil {
		*q.mark = m
	}
}

func (d decision) result() ratelimiter.Result {
	return ratelimiter.Result{Granted: d.granted, Available: d.remaining, Wait: micros(d.wait), Reset: micros(d.reset)}
}

// An epoch is the id of the call with which a limiter began, and so tells which grants its state has in it. A limiter
// begins when it is unused: when Redis has no key of it, when the window has ended or the bucket is full; and when the clock
// was put back, from when on what has come in for a grant can no longer be told. The zero value is no epoch.
type epoch [14]byte

func epochOf(id string) (e epoch) {
	copy(e[:], id)
	return e
}

func (e epoch) String() string { return strings.TrimRight(string(e[:]), "\x00") }

// numbers parses that many integers separated by single spaces, and the epoch behind them, if any.
func numbers(text string, count int) (list [6]int64, e epoch, ok bool) {
	text, its, _ := strings.Cut(text, "@")
	i := 0
	for rest := true; rest; i++ {
		var word string
		word, text, rest = strings.Cut(text, " ")
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || i == count {
			return list, e, false
		}
		list[i] = n
	}
	return list, epochOf(its), i == count
}

// signature returns the name of the algorithm and its parameters, which are part of the keys.
func signature(n *setting) string {
	var b strings.Builder
	b.WriteString(stateName(n.script))
	parameters := n.parameters
	if n.parametersAt != nil {
		parameters = n.identity
	}
	for _, v := range parameters {
		fmt.Fprintf(&b, ":%v", v)
	}
	return b.String()
}
