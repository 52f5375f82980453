// SPDX-License-Identifier: Apache-2.0

package testworld

import (
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// These are the ways in which a call can fail. Each failed call gets its own copy of the error.
var (
	// Rejected means that the server could not be reached.
	Rejected = &retry.Error{Err: errors.New("connection refused"), Outcome: retry.NotExecuted}
	// Lost means that no reply arrived.
	Lost = &retry.Error{Err: errors.New("connection reset"), Outcome: retry.Unknown}
	// Exhausted means that the process had no free connection.
	Exhausted = &retry.Error{Err: &retry.Shortage{Err: errors.New("connection pool timeout")}, Outcome: retry.NotExecuted, Local: true}
	// Loading means that the server is up but not ready.
	Loading = &retry.Error{Err: errors.New("LOADING"), Outcome: retry.NotExecuted, Answered: true}
	// OutOfMemory means that the server refuses to write.
	OutOfMemory = &retry.Error{Err: errors.New("OOM"), Outcome: retry.NotExecuted, Answered: true, ReadOnly: true}
	// Denied means that the server rejects the call, however often it is sent.
	Denied = &retry.Error{Err: errors.New("NOPERM"), Outcome: retry.Executed, Answered: true}
)

// A Call is a call that a process made.
type Call struct {
	Op     string    // "acquire", "refund", "reserve", "heal", "acquire_all", "probe"
	Key    string    // of the first limiter
	ID     permit.ID // of what is granted or returned, on the first limiter; zero for a heal
	At     time.Time
	Replay bool
	Part   bool         // for a reserve: of a list
	Batch  permit.Batch // for an acquire
	Grant  permit.Grant // for a refund

	reads func() bool // whether it writes nothing; nil if it does
}

// A Fault is what happens to a call. With the zero Fault nothing goes wrong.
type Fault struct {
	Before, After time.Duration       // the time until the call is carried out, and from then until the reply
	Err           *retry.Error        // what the process gets in place of a reply
	Reply         func(*permit.Reply) // turns a rejection into the reply to an acquire, which is not carried out
	Runs          bool                // the call is carried out even if Err is set
	Reads         bool                // the call is carried out in spite of Err if it writes nothing
}

// LostReply is the fault of a call that is carried out, but whose reply is lost.
var LostReply = Fault{Err: Lost, Runs: true}
