// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"iter"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// A State is what Redis holds of a limiter at one instant, for finding out why callers wait. It shows the
// stored data and not its meaning: expired grants are reclaimed lazily, so they may still be there, and Value may be less
// than AvailablePermits returns. Command rrl inspect also shows the keys, their fields and their TTLs.
type State struct {
	// Time is the instant at which the keys were read, by the limiter's clock: that of Redis, or of this process with
	// [WithClientClock].
	Time time.Time
	// Rate is the limiter's rate. It is zero together with ErrNotInitialized or ErrMalformed.
	Rate Rate
	// Value is the number of permits left, as it is stored. It is empty if the key does not exist: before the first acquire, or
	// after it was evicted or deleted. In a [PerClient] limiter it, MemberCount and Members are those of this client.
	Value string
	// MemberCount is the number of members of the permits key, including expired ones.
	MemberCount int64
	// Members are the newest members, newest first, at most 100.
	Members []Member
}

// A Member is one grant as it is stored in the set of permits in use. A grant that has expired may become smaller before it
// goes: a call may reclaim only as many of its permits as it needs.
//
// Two kinds of members are not grants of permits to a caller, but marks of this package. The bytes of those that hold
// permits for a cool-down have ~c or ~l in them; a member whose bytes have ~w in them and whose Time is the Unix epoch is a
// tripwire of callers that wait, which lowers Value by one. See docs/design/protocol.md.
type Member struct {
	// Time is when the permits were acquired, by the clock of the client that acquired them.
	Time time.Time
	// Permits is how many they are.
	Permits int64
	// Expired reports whether the permits had expired at State.Time, whether or not a call has reclaimed them.
	Expired bool
	// Writers is who writes members of this layout: "Go", versions of Redisson such as "Redisson 3.21.0 and later", or
	// "no known version". The layouts of several versions in one limiter mean that some of them cannot read others.
	Writers string
	// Raw is the member as it is stored.
	Raw []byte
}

// Inspect reads the limiter's keys in one call. It changes nothing, and reads at most 100 members.
//
// Inspect returns ErrNotInitialized if the limiter has no rate, and ErrMalformed if its hash is not that of a
// limiter. Both come with the State as far as it can be read, so the remains of a limiter can be examined. After
// ctx.Err(), ErrClosed, ErrInvalidArgument, ErrNameNotClusterSafe, ErrConflict, ErrUnavailable, ErrOverloaded, or an
// error from Redis, the State is zero.
func (a Admin) Inspect(ctx context.Context) (State, error) {
	l := a.limiter
	found, err := do(ctx, l, (*redisson.Limiter).Inspect)
	if found.Fields == nil {
		return State{}, err
	}
	s := State{
		Time:        found.Time,
		Rate:        rateOf(found.Rate),
		Value:       found.Value,
		MemberCount: found.MemberCount,
		Members:     make([]Member, 0, len(found.Members)),
	}
	for _, f := range found.Members {
		m, _ := wire.ParseMember(f.Raw) // an unknown layout is something that the caller wants to see
		expired := err == nil && redisson.Expired(f.Raw, float64(f.Time.UnixMilli()), s.Time.UnixMilli()-s.Rate.Interval.Milliseconds())
		s.Members = append(s.Members, Member{Time: f.Time, Permits: int64(m.Permits), Expired: expired, Writers: m.Layout().Writers(), Raw: f.Raw})
	}
	return s, err
}

// Clients returns an iterator over the ids of the clients that have permits of a [PerClient] limiter in Redis. It
// finds them by the names of their keys, and yields each id once, in no particular order. The ids are those of
// [WithClientID] and the UUIDs of Redisson's instances. To see the permits of a client, call [Admin.Inspect]
// through a Client that [New] made with its id. An [Overall] limiter has no such clients, unless it used to be
// PerClient.
//
// Clients looks for the keys among all keys of the server that holds the limiter, which takes some seconds for a
// million keys. It uses SCAN, in steps of 200 keys, and never KEYS. In a cluster or a ring it scans one server only,
// because the keys of a limiter share a slot. It may miss ids that appear or vanish in the meantime. If you leave the
// loop early, no more steps are sent. Clients changes nothing, and remembers in memory the ids that it has yielded.
//
// The last pair may be an empty id with an error: ctx.Err(), ErrClosed, ErrInvalidArgument, ErrNameNotClusterSafe,
// ErrUnavailable, ErrOverloaded, or an error from Redis.
func (a Admin) Clients(ctx context.Context) iter.Seq2[string, error] {
	l := a.limiter
	return func(yield func(string, error) bool) {
		if err := l.ready(ctx); err != nil {
			yield("", err)
			return
		}
		for ids, err := range link.Steps(ctx, &l.handle.Link, l.redis.Clients()) {
			for _, id := range ids {
				if !yield(id, nil) {
					return
				}
			}
			if err != nil {
				yield("", err)
			}
		}
	}
}
