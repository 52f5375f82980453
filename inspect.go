package ratelimiter

import (
	"context"
	"iter"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A State is a copy of what Redis holds of a limiter at one instant, for somebody who wants to know why callers
// wait. It shows the stored data and not its meaning: expired grants are reclaimed lazily, so they may still be
// there, and Value may be less than AvailablePermits returns.
type State struct {
	// Time is the instant at which the keys were read, by the limiter's clock: that of Redis, or that of this
	// process with WithClientClock.
	Time time.Time

	// HashKey, ValueKey and PermitsKey are the names of the limiter's keys. In a [PerClient] limiter the last
	// two are those of this client.
	HashKey, ValueKey, PermitsKey string
	// HashTTL, ValueTTL and PermitsTTL are how long each key still lives, to the millisecond. They are 0 for
	// a key that does not expire or does not exist.
	HashTTL, ValueTTL, PermitsTTL time.Duration

	// Fields are the fields of the hash as they are stored. If the hash has more than 64 fields, only those of
	// a limiter are included. The fields coolDown and reopenUntil, in milliseconds since the epoch, are present
	// while a cool-down is in force or re-opens.
	Fields map[string]string
	// Rate is the rate that the Fields hold.
	Rate Rate
	// Value is the content of the value key as it is stored, and empty if HasValue is false. The key does not
	// exist until the first acquire, nor after it was evicted or deleted.
	Value    string
	HasValue bool

	// MemberCount is the number of members of the permits key, including expired ones.
	MemberCount int64
	// Members are the newest members, newest first, at most 100.
	Members []StoredMember
	// Formats counts the Members by format. There is more than one if Redisson versions meet that do not read
	// each other's members.
	Formats map[MemberFormat]int
	// Layouts counts the Members by layout, which tells by whom they were written: it sets Redisson 3.17.0 to
	// 3.20, Redisson 3.21.0 and later, and this package apart, whose format is the same.
	Layouts map[MemberLayout]int
}

// A StoredMember is one member of a permits set with its score. A member that no Redisson writes has the Format
// MemberUnknown, and the Permits that a reader finds in its last four bytes. Permits that a cool-down holds are
// members whose ID begins with ~c, or with ~l once they have been lifted. A member whose ID begins with ~w and
// whose Time is the Unix epoch is a tripwire of callers that wait; it is nobody's grant, and Value is one less
// because of it.
type StoredMember struct {
	Member
	// Raw is the member as it is stored.
	Raw []byte
	// Time is the score: when the permits were acquired, by the clock of the client that acquired them.
	Time time.Time
	// Expired reports whether the permits had come back at State.Time, whether or not anybody has reclaimed
	// them.
	Expired bool
}

// Inspect reads the limiter's keys in one call. It changes nothing, and reads at most 100 members however many
// there are.
//
// Inspect returns ErrNotInitialized if the limiter has no rate, and ErrMalformed if its hash is not that of a
// limiter. Both come with the State as far as it can be read, so that the remains of a limiter can be examined.
// After ctx.Err(), ErrClosed, ErrInvalidArgument, ErrNameNotClusterSafe, ErrConflict, ErrUnavailable, or an error from
// Redis, the State is zero.
func (l *RateLimiter) Inspect(ctx context.Context) (State, error) {
	if err := l.ready(ctx); err != nil {
		return State{}, err
	}
	var (
		found redisson.State
		typ   permit.Type
	)
	err := l.withType("Inspect", func(t permit.Type) (err error) {
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
		HashTTL:     ttlOf(found.HashTTL),
		ValueTTL:    ttlOf(found.ValueTTL),
		PermitsTTL:  ttlOf(found.PermitsTTL),
		Fields:      found.Fields,
		Rate:        rateOf(found.Rate),
		Value:       found.Value,
		HasValue:    found.HasValue,
		MemberCount: found.MemberCount,
		Members:     make([]StoredMember, 0, len(found.Members)),
		Formats:     make(map[MemberFormat]int),
		Layouts:     make(map[MemberLayout]int),
	}
	for _, f := range found.Members {
		m := StoredMember{Raw: f.Raw, Time: f.Time}
		m.Member, _ = ParseMember(m.Raw) // an unknown layout is something that the caller wants to see
		m.Expired = err == nil && redisson.Expired(m.Raw, float64(m.Time.UnixMilli()), s.Time.UnixMilli()-s.Rate.Interval.Milliseconds())
		s.Members = append(s.Members, m)
		s.Formats[m.Format]++
		s.Layouts[m.Layout()]++
	}
	return s, err
}

// Clients returns an iterator over the ids of the clients that have permits of a [PerClient] limiter in Redis,
// by the names of their keys, in no particular order and each once. The ids are those of [WithClientID] and, of
// Redisson, the UUIDs that its instances draw. A Client with such an id, made by [New], shows the permits of that
// client by [RateLimiter.Inspect]. Of an [Overall] limiter there are none, unless it used to be PerClient.
//
// The keys have to be looked for among all keys of the server that holds the limiter. This is done with SCAN, in
// steps of 200 keys (some seconds for a million keys), and never with KEYS; in a cluster or a ring on one server
// only, because the keys of a limiter share a slot. Ids that appear or vanish in the meantime may be missing. A loop
// that is left early sends no more steps. Clients changes nothing, and remembers the ids that it has returned.
//
// The last pair may be an empty id with an error: ctx.Err(), ErrClosed, ErrInvalidArgument,
// ErrNameNotClusterSafe, ErrUnavailable, or an error from Redis.
func (l *RateLimiter) Clients(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := l.ready(ctx)
		if err == nil {
			more := true
			err = l.redis.Clients(ctx, func(id string) bool {
				more = yield(id, nil)
				return more
			})
			if !more {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}
