// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A Script is one embedded file together with the numbers of keys and arguments that this package sends.
type Script struct {
	*dispatch.Script
	resend Resend
}

// op returns the name of the method that runs the script, for errors.
func (s *Script) op() string {
	switch s.Name {
	case "heal":
		return "Heal"
	case "available":
		return "AvailablePermits"
	case "ttl":
		return "TTL"
	case "acquire", "acquire_rest", "acquire_all", "reserve", "give_back":
		return "acquire"
	}
	var b strings.Builder
	for word := range strings.SplitSeq(s.Name, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// A Resend tells when a script may be sent again after an error.
type Resend int

const (
	ResendUnsent   Resend = iota // only if it was certainly not executed
	ResendAlways                 // always: it only reads, or changes nothing the second time
	ResendAsReplay               // always, if it is told so by an argument, as the acquire script is
)

// NewScript returns s as one that may be sent again as r says.
func NewScript(s *dispatch.Script, r Resend) *Script {
	return &Script{s, r}
}

// OptionalArgs allows the last n arguments to be left out, and returns s.
func (s *Script) OptionalArgs(n int) *Script {
	s.Script.OptionalArgs(n)
	return s
}

// RepliesIntegers says that every reply is a list of integers, and returns s.
func (s *Script) RepliesIntegers() *Script {
	s.Integers = true
	return s
}

// Alone makes calls of the script travel in round trips of their own, and returns s.
func (s *Script) Alone() *Script {
	s.Script.Alone = true
	return s
}

// WithReplyClock sets the function that reads from a reply when Redis ran the call, and returns s.
func (s *Script) WithReplyClock(clock func(reply []any) (time.Time, bool)) *Script {
	s.Clock = clock
	return s
}

// AnswersAt returns a function that returns when Redis ran a call, from the i-th element of its reply.
func AnswersAt(i int) func(reply []any) (time.Time, bool) {
	return func(reply []any) (time.Time, bool) {
		if i >= len(reply) {
			return time.Time{}, false
		}
		now, ok := reply[i].(int64)
		return time.UnixMilli(now), ok
	}
}

// WithCost sets how long a call keeps Redis busy, in µs, and returns s.
func (s *Script) WithCost(micros int) *Script {
	s.Micros = micros
	return s
}

// Scripts are all scripts of a limiter.
type Scripts struct {
	Acquire, AcquireRest, AcquireAll                *Script
	GiveBack, Reserve                               *Script
	Heal                                            *Script
	TrySetRate, SetRate, Available, Release, Delete *Script
	Rate, Exists                                    *Script
	Expire, ClearExpire, ExpireTime, TTL            *Script
	CoolDown, CoolDownUntil, LiftCoolDown           *Script
	Inspect                                         *Script
}

// OneCallParts is how many limiters acquire_all takes. The script spells out all of their keys.
const OneCallParts = 6

// The first number of a reply is one of these.
const (
	statusOK = iota
	statusNotInitialized
	statusOtherType
	statusExceeds
	statusMalformed
	statusStartOver
	statusUnusual
)

// A word is one word of an argument that consists of words. It is left out unless said is true.
type word struct {
	said bool
	word string
}

// words returns such an argument.
func words(list ...word) []byte {
	var b []byte
	for _, w := range list {
		if w.said {
			b = append(append(b, w.word...), ' ')
		}
	}
	return b
}

// NotInitialized reports whether a reply says that a limiter has no rate.
func NotInitialized(reply []any) bool {
	return len(reply) > 0 && reply[0] == int64(statusNotInitialized)
}
