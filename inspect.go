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

// A State is what Redis holds of a limiter at one instant, as it is stored: expired grants may still be there, and
// Value may be less than AvailablePermits returns.
type State struct {
	// Time is when the keys were read, by the clock of Redis, or of this process with [WithClientClock].
	Time time.Time
	// Rate is zero together with ErrNotInitialized or ErrMalformed.
	Rate Rate
	// Value is the number of permits left, or empty if the key does not exist: before the first acquire, or after it was
	// evicted. In a [PerClient] limiter it, MemberCount and Members are those of this client.
	Value string
	// MemberCount is the number of members, including expired ones.
	MemberCount int64
	// Members are the newest, newest first, at most 100.
	Members []Member
}

// A Member is one grant as it is stored in the set of permits in use, whose permits a call reclaims as far as it needs
// them, or a mark of this package, for a cool-down (~c or ~l in its bytes) or for callers that wait (~w); see
// docs/design/protocol.md.
type Member struct {
	// Time is when the permits were acquired, by the clock of the client that acquired them.
	Time    time.Time
	Permits int64
	// Expired reports whether the permits had expired at State.Time.
	Expired bool
	// Writers is who writes this layout: "Go", versions such as "Redisson 3.21.0 and later", or "no known version".
	Writers string
	Raw     []byte // as it is stored
}

// Inspect reads the limiter's keys in one call, and changes nothing. It returns ErrNotInitialized if the limiter has no
// rate, and ErrMalformed if its hash is not that of a limiter, both with the State as far as it can be read. After
// ErrConflict or a common error the State is zero.
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

// Clients returns an iterator over the ids of the clients that have permits of a [PerClient] limiter in Redis: those of
// [WithClientID] and the UUIDs of Redisson's instances. The last pair may be an empty id with a common error. To see
// the permits of a client, call [Admin.Inspect] through a Client with its id.
//
// It looks with SCAN, 200 keys at a time, through all keys of the server that holds the limiter: some seconds for a
// million keys. It may miss ids that appear or vanish meanwhile.
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
