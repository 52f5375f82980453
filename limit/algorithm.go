// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"embed"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
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
// slower by less than a billionth. There always is such a rate for a capacity of up to two million permits that
// come in within 140 years, which at one permit a year are 140. A larger capacity that has none is rejected with
// ratelimiter.ErrInvalidArgument, as is a parameter that is out of its range; the error names it.
type Algorithm interface {
	// check returns an error if a parameter is out of its range. The others are called only if there is none.
	check() error
	bound(window time.Duration, n int64) int64 // see Bound
	model() calls.Model
}

//go:embed scripts
var scriptFiles embed.FS

// Bound returns the most permits that calls of at most n permits each are granted by the algorithm in any window of the
// given length, a whole number of microseconds. A window includes its first instant and excludes its last. Reserved
// permits count at the instant from which they may be used. An n above [MaxPerCall] is that. Bound is 0 if n or the window is not
// positive, and if a is one that [NewLocal] rejects, such as nil.
func Bound(a Algorithm, window time.Duration, n int64) int64 {
	of, err := checked(a)
	if err != nil || n < 1 {
		return 0
	}
	return of.bound(window, min(n, of.model().Largest))
}

// MaxPerCall returns the most permits that one call can be granted by the algorithm. It is 0 if a is one that [NewLocal] rejects, such
// as nil.
func MaxPerCall(a Algorithm) int64 {
	of, err := checked(a)
	if err != nil {
		return 0
	}
	return of.model().Largest
}

// checked returns a without a pointer to it, or an error if it is nil or has a parameter that is out of its range. Nobody can change
// what it returns.
func checked(a Algorithm) (Algorithm, error) {
	of := pointee(a)
	if of == nil {
		return nil, calls.Invalid("the algorithm is nil")
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

// signature returns the name of the algorithm and its parameters, which are part of the keys.
func signature(n *calls.Setting) string {
	var b strings.Builder
	b.WriteString(stateName(n.Script))
	parameters := n.Parameters
	if n.ParametersAt != nil {
		parameters = n.Identity
	}
	for _, v := range parameters {
		fmt.Fprintf(&b, ":%v", v)
	}
	return b.String()
}

// numbers parses that many integers separated by single spaces, and the epoch behind them, if any.
func numbers(text string, count int) (list [6]int64, e calls.Epoch, ok bool) {
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
	return list, calls.EpochOf(its), i == count
}

// stateName returns what stands for a script in the Redis keys: its name, and after it which way of writing the state it is, if it is not
// the first one of the layout. Processes of a version that writes it in another way do not read it.
func stateName(s *dispatch.Script) string {
	switch s {
	case calendarQuotaScript, smoothScript:
		return s.Name
	case gcraScript:
		return s.Name + "3"
	}
	return s.Name + "2"
}

func newSetting(a Algorithm) *calls.Setting {
	return &calls.Setting{Algorithm: a, Model: a.model()}
}
