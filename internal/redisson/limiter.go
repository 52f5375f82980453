// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
)

// TrySetRate sets the limiter's rate if it has none, and reports whether it did.
func (l *Limiter) TrySetRate(ctx context.Context, r permit.Rate) (bool, error) {
	n, err := l.run(ctx, l.Scripts.TrySetRate, []string{l.Keys.Hash},
		r.Permits, r.Interval.Milliseconds(), r.KeepAlive.Milliseconds(), wire(r.Type), r.MinGap.Milliseconds())
	return err == nil && n[0] == 1, err
}

// SetRate sets the limiter's rate and reports whether it did. With mustExist it leaves a limiter without a rate
// alone. With keepState the permits in use stay in use. If the permits of other clients may not fit the new rate, it
// looks for their keys among all keys of the server, and makes them fit. After an error the rate may have been set;
// if set is true, it has been.
func (l *Limiter) SetRate(ctx context.Context, r permit.Rate, mustExist, keepState bool) (set bool, err error) {
	words := words(word{mustExist, "exists"}, word{keepState, "keep"}, word{l.LongLength, "long"})
	n, err := l.run(ctx, l.Scripts.SetRate, append(l.Keys.All(r.Type), l.Keys.Parked(r.Type)), r.Permits, r.Interval.Milliseconds(),
		r.KeepAlive.Milliseconds(), wire(r.Type), l.now(), words, r.MinGap.Milliseconds())
	if err != nil || n[0] == 0 {
		return false, err
	}
	if len(n) != 3 {
		return true, l.badReply(l.Scripts.SetRate, n)
	}
	if n[1] == 1 {
		// There are too many permits in use for one call. The script has already changed value by the same number as
		// the rate, so no permit is granted beyond the rate, whatever happens here.
		err = l.Heal(ctx, r.Type, permit.Lowered)
	}
	if err == nil && n[2] == 1 {
		err = l.fitClients(ctx)
	}
	l.hints.learnType(r.Type)
	return true, err
}

// fitClients makes the permits of each other client fit the rate, both those left and those in use: Redisson would
// acquire permits that are left even if they exceed the rate. It skips commands that the server does not know or
// allow, and keys that do not show that they belong to a client.
func (l *Limiter) fitClients(ctx context.Context) error {
	var failed error
	err := l.Clients(ctx, func(id string) bool {
		other := *l
		other.Keys = NewKeys(l.Keys.Hash, id)
		if other.Keys.Value == l.Keys.Value {
			return true
		}
		ours, err := other.isClient(ctx, id)
		if err == nil && ours {
			err = other.Heal(ctx, permit.PerClient, permit.Lowered)
		}
		failed = possible(err)
		return failed == nil
	})
	if err = cmp.Or(failed, possible(err)); err != nil {
		return fmt.Errorf("%w (the rate is set, but what other clients have left may be more than it)", err)
	}
	return nil
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
func (l *Limiter) Rate(ctx context.Context) (permit.Rate, error) {
	raw, err := l.look(ctx, l.Scripts.Rate)
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
func (l *Limiter) Exists(ctx context.Context) (bool, error) {
	n, err := l.numbersOf(ctx, l.Scripts.Exists)
	return err == nil && n[0] == 1, err
}

// Delete removes the limiter's keys, and reports whether there were any.
func (l *Limiter) Delete(ctx context.Context) (bool, error) {
	n, err := l.run(ctx, l.Scripts.Delete, l.Keys.Everything())
	return err == nil && n[0] == 1, err
}

// Available returns how many permits a call could acquire now. It counts as of the instant of its first call, however
// many calls it takes.
func (l *Limiter) Available(ctx context.Context) (left int64, err error) {
	err = l.withType("AvailablePermits", l.Type(), func(typ permit.Type) error {
		for range 3 {
			var changed bool
			if left, changed, err = l.count(ctx, typ); err != nil || !changed {
				return err
			}
		}
		left = 0
		return permit.CountKeepsChanging("AvailablePermits", l.Name)
	})
	return left, err
}

// count is like Available, but reports changed if the set has changed in the meantime and the count has to start
// over.
func (l *Limiter) count(ctx context.Context, typ permit.Type) (left int64, changed bool, err error) {
	s := l.Scripts.Available
	side, members, permits, now := "", int64(0), int64(0), l.now()
	for {
		raw, err := l.send(ctx, s, l.Keys.Of(typ), wire(typ), now, side, members, permits)
		if err != nil {
			return 0, false, err
		}
		f, startOver, err := l.readStatus(s, raw)
		if err != nil || startOver {
			return 0, startOver, err
		}
		done := f.number() == 1
		if done {
			left = f.number()
			f.number() // the instant
		} else {
			side, members, permits, now = f.text(), f.number(), f.number(), f.number()
		}
		if !f.whole() {
			return 0, false, l.badReply(s, raw)
		}
		if done {
			return left, false, nil
		}
	}
}

// Release gives permits back in steps of bounded work, but no more than are in use. It returns how many are left to
// give back, which is 0 unless there is an error.
func (l *Limiter) Release(ctx context.Context, permits int64) (left int64, err error) {
	s, left := l.Scripts.Release, permits
	err = l.withType("Release", l.Type(), func(typ permit.Type) error {
		for left > 0 {
			n, err := l.run(ctx, s, l.Keys.Of(typ), wire(typ), left, l.KeyTTL.Milliseconds(), l.now())
			if err == nil {
				err = l.statusError(n)
			}
			if err == nil && len(n) != 3 {
				err = l.badReply(s, n)
			}
			if err != nil {
				return err
			}
			left = n[1]
		}
		return nil
	})
	return left, err
}
