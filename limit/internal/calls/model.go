// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A Model is an algorithm with its parameters, as a call needs to know it.
type Model struct {
	Script       *dispatch.Script
	Parameters   []any                           // those of the script, beside those of Limiter.Command
	ParametersAt func(now int64) []any           // those of a call at an instant in µs, and for some time around it; nil if they are always the same
	Identity     []any                           // what is part of the keys in place of the parameters if they change with the time
	Largest      int64                           // the most permits that one call can be granted
	Reserves     bool                            // it grants permits in advance
	Idle         func() State                    // of a limiter that has not been used for long, or never
	Stored       func(text string) (State, bool) // the state that the text in a reply of the script describes; false if no limiter writes it
}

// A Setting is an algorithm with its parameters, by which requests are decided. It stays as it is.
type Setting struct {
	Model
	Algorithm  any                   // that the model is of
	redated    atomic.Pointer[[]any] // those of another time, by which they were not decided
	Generation string                // part of the Redis keys, unless nothing was ever forgotten
}

// Settles reports whether grants of n can be settled.
func (n *Setting) Settles() bool {
	_, ok := n.Idle().(Settler)
	return ok
}

// A State is what a local limiter remembers, with the algorithm's arithmetic in Go. The script is the same
// arithmetic in Lua; TestLocalAndSharedAgree compares the two.
type State interface {
	// Take decides on a demand, and takes the permits when it is granted and spend is set. Otherwise it changes nothing,
	// unless the clock was put back: then the state becomes the same as of the new time, whoever asks. Instants and durations are in µs.
	Take(q Demand, id Epoch) Decision
}

// A log is a state that does not say when its permits come back, but the first of them: the reply says how long a request that was
// rejected has to wait.
type log interface {
	State
	Due() int64
}

// A Demand is what one call asks for.
type Demand struct {
	Now, N int64
	AtMost int64 // how long the caller would wait for permits that are granted in advance
	Spend  bool  // false for a Peek

	UpTo       bool        // it takes what there is, up to N
	settlement *Settlement // settles a grant instead of asking for permits
}

// Check returns an error if q cannot be granted, however long it waits.
func (q *Demand) Check(m *Model) error {
	if q.N < 1 || q.N > MaxPermits {
		return Invalid("a call for %d permits is not in 1..%d", q.N, int64(MaxPermits))
	}
	if !q.UpTo && q.N > m.Largest {
		return fmt.Errorf("%w: a call for %d permits, where one call can get at most %d", ratelimiter.ErrPermitsExceedRate, q.N, m.Largest)
	}
	return nil
}

// least returns the fewest permits that q is granted, if it is.
func (q *Demand) least() int64 {
	if q.UpTo {
		return 1
	}
	return q.N
}

// A Decision is the outcome of a Demand. Durations are in µs.
type Decision struct {
	Granted                bool
	Remaining, Wait, Reset int64
	Mark                   Mark // of what was taken, if it can be settled
}

// Result returns d as the caller is told it.
func (d Decision) Result() ratelimiter.Result {
	return ratelimiter.Result{Granted: d.Granted, Available: d.Remaining, Wait: micros(d.Wait), Reset: micros(d.Reset)}
}

// An Outcome is what becomes of a request: what its caller is told, and what it needs to settle a grant.
type Outcome struct {
	ratelimiter.Result
	Permits int64 // that were taken
	Mark    Mark  // of what was taken, if it can be settled
}

// Outcome returns the outcome of q, on which d is the decision.
func (d Decision) Outcome(q Demand) Outcome {
	o := Outcome{Result: d.Result(), Mark: d.Mark}
	if d.Granted && q.Spend {
		o.Permits = q.N
	}
	return o
}

// An Epoch is the id of the call with which a limiter began, and so tells which grants its state has in it. A limiter
// begins when it is unused: when Redis has no key of it, when the window has ended or the bucket is full; and when the clock
// was put back, from when on what has come in for a grant can no longer be told. The zero value is no epoch.
type Epoch [14]byte

func EpochOf(id string) (e Epoch) {
	copy(e[:], id)
	return e
}

func (e Epoch) String() string { return strings.TrimRight(string(e[:]), "\x00") }

// A Mark tells what a limiter was right after a grant, so that it can be told later how much of the grant has come back by
// itself. Each algorithm has its own of the numbers, and 0 for the others.
type Mark struct {
	Epoch Epoch    // in which it was granted; none if it can give nothing back
	Taken int64    // the instant of the grant
	From  int64    // the instant from which on permits have come in for it, or at which its window began
	Owed  int64    // what the bucket lacked
	Given int64    // what had been given back to the bucket
	By    *Setting // by which it was granted, if that changes
}

// Of reports whether the state of the epoch e still has the grant in it.
func (m *Mark) Of(e Epoch) bool { return m.Epoch == e && e != Epoch{} }

// A Settlement is a change of a grant.
type Settlement struct {
	By      int64 // permits to take, or to give back if it is negative
	Permits int64 // of the grant
	Mark    Mark

	// Only the flight of the settlement uses these.
	done  bool   // it was made, though its caller may have left
	id    string // of a call that may have run, and was first sent at begun
	begun time.Time
}

// String returns the argument of the script for s.
func (s *Settlement) String() string {
	m, text := &s.Mark, strconv.AppendInt([]byte("="), s.By, 10)
	for _, n := range []int64{s.Permits, m.Taken, m.From, m.Owed, m.Given} {
		text = strconv.AppendInt(append(text, ' '), n, 10)
	}
	return string(text) + "@" + m.Epoch.String()
}

// A Settler is the state of a limiter whose grants can be settled.
type Settler interface {
	State
	// Settle takes the permits of a settlement, whatever is left, or gives back those that have not come back by themselves. It
	// is a call of that id.
	Settle(now int64, id Epoch, x *Settlement)
	// MarkOf returns the mark of a grant of n permits that was made at an instant in that epoch, which may be over. It has too little
	// come back rather than too much.
	MarkOf(e Epoch, at, n int64) Mark
}

// MaxPermits is the most that one call can ask for, as with a RRateLimiter.
const MaxPermits = math.MaxUint32

// MaxExact bounds the numbers that Go and Lua count with. Lua's are exact up to 2^53, so that the sum of two
// of them still is.
const MaxExact = 1 << 52

// ContextError returns the error of ctx, or that of a context that is nil.
func ContextError(ctx context.Context) error {
	if ctx == nil {
		return Invalid("the context is nil")
	}
	return ctx.Err()
}

func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
