// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
)

// TrySetRate sets the limiter's rate if it has none, and reports whether it did.
func (l *Limiter) TrySetRate(r permit.Rate) permit.Op[bool] {
	return l.isOne(l.Scripts.TrySetRate, []string{l.Keys.Hash},
		r.Permits, r.Interval.Milliseconds(), r.KeepAlive.Milliseconds(), wire(r.Type), r.MinGap.Milliseconds())
}

// A RateSet is the result of SetRate. After an error, too, it says what has been done.
type RateSet struct {
	Set  bool
	Fits bool // what other clients have left does, or cannot be known; only if Set
}

// SetRate sets the limiter's rate and reports whether it did. With mustExist it leaves a limiter without a rate
// alone. With keepState the permits in use stay in use. If the permits of other clients may not fit the new rate, it
// looks for their keys among all keys of the server, and makes them fit.
func (l *Limiter) SetRate(r permit.Rate, mustExist, keepState bool) permit.Op[RateSet] {
	s, did, rest := l.Scripts.SetRate, RateSet{Fits: true}, []func(context.Context) (more bool, err error)(nil)
	set := func(ctx context.Context) error {
		words := words(word{mustExist, "exists"}, word{keepState, "keep"}, word{l.LongLength, "long"})
		n, err := l.run(ctx, s, l.Keys.All(r.Type), r.Permits, r.Interval.Milliseconds(),
			r.KeepAlive.Milliseconds(), wire(r.Type), l.now(), words, r.MinGap.Milliseconds())
		if err != nil || n[0] == 0 {
			return err
		}
		did.Set = true
		l.hints.learnRate(r)
		if len(n) != 3 {
			return l.badReply(s, n)
		}
		if n[1] == 1 {
			// There are too many permits in use for one call. The script has already taken from value what a lower rate
			// lacks, so no permit is granted beyond the rate, whatever happens here.
			heal := l.Heal(r.Type, permit.Believed)
			rest = append(rest, func(ctx context.Context) (more bool, err error) {
				_, more, err = heal.Step(ctx)
				return more, err
			})
		}
		if n[2] == 1 {
			f := fitting{of: l, clients: l.Clients()}
			did.Fits = false
			rest = append(rest, func(ctx context.Context) (more bool, err error) {
				more, err = f.step(ctx)
				did.Fits = err == nil && !more
				return more, err
			})
		}
		return nil
	}
	return permit.Op[RateSet]{Name: s.op(), Step: func(ctx context.Context) (_ RateSet, more bool, err error) {
		if !did.Set {
			err = set(ctx)
		} else if more, err = rest[0](ctx); !more && err == nil {
			if rest = rest[1:]; len(rest) == 0 {
				l.hints.learnType(r.Type) // so that the next rejection looks for lost permits, although there was a heal
			}
		}
		return did, len(rest) > 0, err
	}}
}

// A fitting makes the permits of each other client fit the rate, both those left and those in use: Redisson would
// acquire permits that are left even if they exceed the rate. It skips commands that the server does not know or
// allow, and keys that do not show that they belong to a client.
type fitting struct {
	of      *Limiter
	clients permit.Op[[]string]
	ids     []string // not looked at yet
	more    bool     // clients
	heal    *permit.Op[struct{}]
}

// step makes one call, and reports whether more follow.
func (f *fitting) step(ctx context.Context) (more bool, err error) {
	switch {
	case f.heal != nil:
		_, more, err := f.heal.Step(ctx)
		if err = possible(err); err != nil {
			return true, err
		}
		if !more {
			f.heal = nil
		}
	case len(f.ids) > 0:
		id, other := f.ids[0], *f.of
		other.hints = nil // they are of our client's permits
		if other.Keys = NewKeys(f.of.Keys.Hash, id); other.Keys.Value != f.of.Keys.Value {
			ours, err := other.isClient(ctx, id)
			if err = possible(err); err != nil {
				return true, err
			}
			if ours {
				heal := other.Heal(permit.PerClient, permit.Believed)
				f.heal = &heal
			}
		}
		f.ids = f.ids[1:]
	default:
		f.ids, f.more, err = f.clients.Step(ctx)
		if err = possible(err); err != nil {
			return true, err
		}
	}
	return f.heal != nil || len(f.ids) > 0 || f.more, nil
}

// possible returns err, but nil for a reply that the command does not exist or is not allowed for that key.
func possible(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) && impossible.MatchString(reply.Error()) {
		return nil
	}
	return err
}

var impossible = regexp.MustCompile("WRONGTYPE|unknown command") // Redis before 7 says so of a script after other words

// rateFields are the fields of the hash that make up a Rate, in the order of the reply of rate.lua.
var rateFields = []string{"rate", "interval", "type", "keepAliveTime", "minGap"}

// Rate returns the limiter's rate.
func (l *Limiter) Rate() permit.Op[permit.Rate] { return readOnly(l.Scripts.Rate, l.rate) }

func (l *Limiter) rate(ctx context.Context) (permit.Rate, error) {
	raw, err := l.send(ctx, l.Scripts.Rate, []string{l.Keys.Hash})
	if err != nil {
		return permit.Rate{}, err
	}
	values, _ := raw.([]any)
	if len(values) != len(rateFields) {
		return permit.Rate{}, l.badReply(l.Scripts.Rate, raw)
	}
	hash := make(map[string]string, len(rateFields))
	for i, field := range rateFields {
		switch v := values[i].(type) {
		case string:
			hash[field] = v
		case nil: // there is no such field
		default:
			return permit.Rate{}, l.badReply(l.Scripts.Rate, raw)
		}
	}
	r, err := parseRate(hash)
	if err != nil {
		return permit.Rate{}, fmt.Errorf("%w (limiter %q)", err, l.Name)
	}
	return r, nil
}

// Exists reports whether the limiter has a rate.
func (l *Limiter) Exists() permit.Op[bool] {
	op := l.isOne(l.Scripts.Exists, []string{l.Keys.Hash})
	op.Reads = true
	return op
}

// Delete removes the limiter's keys, and reports whether there were any.
func (l *Limiter) Delete() permit.Op[bool] { return l.isOne(l.Scripts.Delete, l.Keys.Everything()) }

// maxCounts is how often a count begins, if the set changes in the meantime.
const maxCounts = 3

// Available returns how many permits a call could acquire now. It counts as of the instant of its first call, however
// many calls it takes.
func (l *Limiter) Available() permit.Op[int64] {
	s, c, starts := l.Scripts.Available, count{typ: -1}, 0
	op := typed(l, s, func(ctx context.Context, typ permit.Type) (left int64, more bool, err error) {
		if c.typ != typ {
			c, starts = count{typ: typ, now: l.now()}, 1
		}
		left, done, startOver, err := l.count(ctx, &c)
		if startOver {
			if starts == maxCounts {
				return 0, false, permit.CountKeepsChanging(s.op(), l.Name)
			}
			c, starts = count{typ: typ, now: l.now()}, starts+1
		}
		return left, !done, err
	})
	op.Asks = true
	return op
}

// A count is how far available has counted.
type count struct {
	typ              permit.Type
	side             string
	members, permits int64
	now              any
}

// count makes one call of available. It reports whether c is done with the permits left, or else whether the set has changed and
// the count has to start over.
func (l *Limiter) count(ctx context.Context, c *count) (left int64, done, startOver bool, err error) {
	s := l.Scripts.Available
	raw, err := l.send(ctx, s, l.Keys.Of(c.typ), wire(c.typ), c.now, c.side, c.members, c.permits)
	if err != nil {
		return 0, false, false, err
	}
	f, startOver, err := l.readStatus(s, raw)
	if err != nil || startOver {
		return 0, false, startOver, err
	}
	next := count{typ: c.typ}
	if done = f.number() == 1; done {
		left = f.number()
		f.number() // the instant
	} else {
		next.side, next.members, next.permits, next.now = f.text(), f.number(), f.number(), f.number()
	}
	if !f.whole() {
		return 0, false, false, l.badReply(s, raw)
	}
	*c = next
	return left, done, false, nil
}

// Release gives permits back in steps of bounded work, but no more than are in use. Its result is how many are left to
// give back, which is 0 unless there is an error.
func (l *Limiter) Release(permits int64) permit.Op[int64] {
	s, left := l.Scripts.Release, permits
	return typed(l, s, func(ctx context.Context, typ permit.Type) (int64, bool, error) {
		n, err := l.run(ctx, s, l.Keys.Of(typ), wire(typ), left, l.KeyTTL.Milliseconds(), l.now())
		if err == nil {
			err = l.statusError(n)
		}
		if err == nil && len(n) != 3 {
			err = l.badReply(s, n)
		}
		if err == nil {
			left = n[1]
		}
		return left, left > 0, err
	})
}
