// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"iter"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/wire"
)

// A State is a copy of what Redis holds of a limiter at one instant.
type State struct {
	wire.State
	// Rate is the rate that the Fields describe.
	Rate Rate
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
	typ := found.Type
	if found.Fields == nil {
		return State{}, err
	}
	s := State{Rate: rateOf(found.Rate), State: wire.State{
		Time:        found.Time,
		HashKey:     l.redis.Keys.Hash,
		ValueKey:    l.redis.Keys.Value[typ],
		PermitsKey:  l.redis.Keys.Permits[typ],
		HashTTL:     ttlOf(found.HashTTL),
		ValueTTL:    ttlOf(found.ValueTTL),
		PermitsTTL:  ttlOf(found.PermitsTTL),
		Fields:      found.Fields,
		Value:       found.Value,
		HasValue:    found.HasValue,
		MemberCount: found.MemberCount,
		Members:     make([]wire.StoredMember, 0, len(found.Members)),
		Formats:     make(map[wire.Format]int),
		Layouts:     make(map[wire.Layout]int),
	}}
	for _, f := range found.Members {
		m := wire.StoredMember{Raw: f.Raw, Time: f.Time}
		m.Member, _ = wire.ParseMember(m.Raw) // an unknown layout is something that the caller wants to see
		m.Expired = err == nil && redisson.Expired(m.Raw, float64(m.Time.UnixMilli()), s.Time.UnixMilli()-s.Rate.Interval.Milliseconds())
		s.Members = append(s.Members, m)
		s.Formats[m.Format]++
		s.Layouts[m.Layout()]++
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
