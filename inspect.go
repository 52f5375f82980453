package ratelimiter

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"
)

//go:embed scripts/inspect.lua
var inspectSrc string

var inspectScript = newScript("inspect", inspectSrc, 3, 3, resendAlways)

// inspectMembers is how many members Inspect reads: what a person looks through, and a tenth of a
// millisecond of Redis.
const inspectMembers = 100

// A State is a limiter as it lies in Redis at one instant: what a person wants to see who asks why
// somebody waits. It is a copy; it holds what Redis holds, not what it means. Reclaiming is lazy, so
// that grants which have expired may still be there and Value may be less than AvailablePermits.
type State struct {
	// Time is the instant of the look, by the limiter's clock: that of Redis unless WithClientClock.
	Time time.Time

	// HashKey, ValueKey and PermitsKey are the names of the limiter's keys. Of a [PerClient] limiter
	// the last two are those of this client.
	HashKey, ValueKey, PermitsKey string
	// HashTTL, ValueTTL and PermitsTTL are how long each key still lives, to the millisecond, [NoTTL]
	// for ever, or [NoLimiter] when there is no such key.
	HashTTL, ValueTTL, PermitsTTL time.Duration

	// Fields are those of the hash as they are; of a hash of more than 64 only those of a limiter. coolDown and
	// reopenUntil, in ms since the epoch, are there while a cool-down is in force or re-opens.
	Fields map[string]string
	// Rate is what they say.
	Rate Rate
	// Value is the value key as it is, empty when HasValue is false. It is absent until the first
	// acquire, and where it was evicted or deleted.
	Value    string
	HasValue bool

	// MemberCount is how many members the permits key has, expired ones included.
	MemberCount int64
	// Members are the newest of them, newest first, at most 100.
	Members []StoredMember
	// Formats is how many of Members have which layout: more than one where Redisson versions meet
	// that do not read each other's.
	Formats map[MemberFormat]int
}

// A StoredMember is one member of a permits set with its score. One that no Redisson writes has the
// Format MemberUnknown, and the Permits that a reader finds in its last four bytes. The permits that a
// cool-down holds are members too, whose ID begins with ~c; those that were lifted begin with ~l. A member whose ID
// begins with ~w and whose Time is the Unix epoch is a tripwire of callers that wait: nobody's grant, for which Value
// is one less.
type StoredMember struct {
	Member
	// Raw is the member as it is.
	Raw []byte
	// Time is its score: when the permits were acquired, by the clock of whoever acquired them.
	Time time.Time
	// Expired says that at State.Time the permits had come back, whether or not anybody has
	// reclaimed them.
	Expired bool
}

// Inspect reads the limiter's keys in one call. It changes nothing, and reads at most 100 members
// however many there are.
//
// Errors: ErrNotInitialized when the limiter has no rate and ErrMalformed when its hash is none of a
// limiter; both come with the State as far as it can be read, so that what is left of a limiter can
// be looked at. After ctx.Err(), ErrClosed, those of the name and those of Redis the State is zero.
func (l *RateLimiter) Inspect(ctx context.Context) (State, error) {
	if err := l.ready(ctx); err != nil {
		return State{}, err
	}
	var s State
	err := l.withType("inspect", func(typ RateType) error {
		raw, err := l.send(ctx, inspectScript, l.keys.of(typ), typ.wire(), l.client.now(), inspectMembers)
		if err != nil {
			return err
		}
		r, ok := raw.([]any)
		if !ok || len(r) == 0 {
			return l.badReply(inspectScript, raw)
		}
		if r[0] == int64(statusOtherType) {
			return &otherTypeError{typ.other()}
		}
		s, err = l.readState(typ, r)
		return err
	})
	return s, err
}

// readState turns the script's answer into a State.
func (l *RateLimiter) readState(typ RateType, r []any) (State, error) {
	if len(r) != 9 || r[0] != int64(statusOK) {
		return State{}, l.badReply(inspectScript, r)
	}
	now, ok1 := r[1].(int64)
	fields, ok2 := r[2].([]any)
	value, hasValue := r[3].(string)
	count, ok3 := r[4].(int64)
	members, ok4 := r[5].([]any)
	hashTTL, ok5 := r[6].(int64)
	valueTTL, ok6 := r[7].(int64)
	permitsTTL, ok7 := r[8].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || len(fields)%2 != 0 || len(members)%2 != 0 {
		return State{}, l.badReply(inspectScript, r)
	}
	s := State{
		Time:        time.UnixMilli(now),
		HashKey:     l.keys.hash,
		ValueKey:    l.keys.value[typ],
		PermitsKey:  l.keys.permits[typ],
		HashTTL:     pttl(hashTTL),
		ValueTTL:    pttl(valueTTL),
		PermitsTTL:  pttl(permitsTTL),
		Fields:      make(map[string]string, len(fields)/2),
		Value:       value,
		HasValue:    hasValue,
		MemberCount: count,
		Members:     make([]StoredMember, 0, len(members)/2),
		Formats:     make(map[MemberFormat]int),
	}
	for i := 0; i < len(fields); i += 2 {
		name, ok1 := fields[i].(string)
		v, ok2 := fields[i+1].(string)
		if !ok1 || !ok2 {
			return State{}, l.badReply(inspectScript, r)
		}
		s.Fields[name] = v
	}
	rate, err := parseRate(s.Fields)
	s.Rate = rate
	for i := 0; i < len(members); i += 2 {
		b, ok1 := members[i].(string)
		text, ok2 := members[i+1].(string)
		score, perr := strconv.ParseFloat(text, 64)
		if !ok1 || !ok2 || perr != nil {
			return State{}, l.badReply(inspectScript, r)
		}
		m := StoredMember{Raw: []byte(b), Time: scoreTime(score)}
		m.Member, _ = ParseMember(m.Raw) // an unknown layout is what the reader wants to see
		m.Expired = err == nil && !m.Time.Add(rate.Interval).After(s.Time)
		s.Members = append(s.Members, m)
		s.Formats[m.Format]++
	}
	if errors.Is(err, ErrNotInitialized) {
		return s, fmt.Errorf("%w: %q has no rate; call TrySetRate first", ErrNotInitialized, l.name)
	} else if err != nil {
		return s, fmt.Errorf("%w (%q)", err, l.name)
	}
	return s, nil
}

// pttl is a PTTL as a duration: -1 and -2 are NoTTL and NoLimiter as they are.
func pttl(n int64) time.Duration {
	if n < 0 {
		return time.Duration(n)
	}
	return ms(n)
}

// scoreTime is a score as an instant. A score that is no time in ms, infinite at worst, becomes an
// instant some 36 million years away, to which an interval can still be added.
func scoreTime(score float64) time.Time {
	const limit = 1 << 60
	return time.UnixMilli(int64(max(-limit, min(limit, score))))
}
