package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

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
	var (
		found redisson.State
		typ   permit.Type
	)
	err := l.withType("inspect", func(t permit.Type) (err error) {
		found, err = l.redis.Inspect(ctx, t)
		typ = t
		return err
	})
	if found.Fields == nil {
		return State{}, err
	}
	s := State{
		Time:        found.Time,
		HashKey:     l.redis.Keys.Hash,
		ValueKey:    l.redis.Keys.Value[typ],
		PermitsKey:  l.redis.Keys.Permits[typ],
		HashTTL:     found.HashTTL,
		ValueTTL:    found.ValueTTL,
		PermitsTTL:  found.PermitsTTL,
		Fields:      found.Fields,
		Rate:        rateOf(found.Rate),
		Value:       found.Value,
		HasValue:    found.HasValue,
		MemberCount: found.MemberCount,
		Members:     make([]StoredMember, 0, len(found.Members)),
		Formats:     make(map[MemberFormat]int),
	}
	for _, f := range found.Members {
		m := StoredMember{Raw: f.Raw, Time: f.Time}
		m.Member, _ = ParseMember(m.Raw) // an unknown layout is what the reader wants to see
		m.Expired = err == nil && !m.Time.Add(s.Rate.Interval).After(s.Time)
		s.Members = append(s.Members, m)
		s.Formats[m.Format]++
	}
	return s, err
}
