package redisson

import (
	"context"
	"errors"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Tally tells how far an audit has counted.
type Tally struct {
	oldest, newest string
	Members        int64
	permits        int64
}

// TallyStep is how many members one audit call reads, which takes a third of a millisecond.
const TallyStep = 1000

// A Balance is the result of an audit: Surplus is value + used − rate, and Value is value as the audit left it,
// which adds up to the rate with the permits in use.
type Balance struct{ Surplus, Value int64 }

// Audit makes value and the permits in use add up to the rate, in calls of bounded work. Permits that are
// neither left nor in use are given back. If there are too many, Audit removes those that the oldest grants
// hold, so that a release by Java keeps what it freed; if leftFirst is true, the grants are believed, and permits that
// are left are removed first. A set that changes faster than it can be read is left for another time.
func (l *Limiter) Audit(ctx context.Context, typ permit.Type, leftFirst bool) error {
	for range 3 {
		var t Tally
		for {
			next, done, found, err := l.AuditStep(ctx, typ, t)
			var other *permit.WrongTypeError
			if errors.As(err, &other) || errors.Is(err, permit.ErrNotInitialized) {
				return nil // changed in the meantime; the next call will learn it
			}
			if err != nil {
				return err
			}
			if done {
				if leftFirst {
					return l.trim(ctx, typ, -found.Value, true)
				}
				return l.trim(ctx, typ, found.Surplus, false)
			}
			if next.Members == 0 {
				break
			}
			t = next
		}
	}
	return nil
}

// AuditStep continues to count from t. When done is true, found is the result.
func (l *Limiter) AuditStep(ctx context.Context, typ permit.Type, t Tally) (next Tally, done bool, found Balance, err error) {
	s := l.Scripts.Audit
	raw, err := l.send(ctx, s, l.Keys.Of(typ), wire(typ), TallyStep, t.oldest, t.newest, t.Members, t.permits)
	if err != nil {
		return Tally{}, false, Balance{}, err
	}
	f, startOver, err := l.readStatus(s, raw)
	if err != nil || startOver {
		return Tally{}, false, Balance{}, err
	}
	if done = f.number() == 1; done {
		found.Surplus, found.Value = f.number(), f.number()
		f.number() // what was restored; see healedOf
	} else {
		next.oldest, next.newest, next.Members, next.permits = f.text(), f.text(), f.number(), f.number()
	}
	if !f.whole() {
		return Tally{}, false, Balance{}, l.badReply(s, raw)
	}
	return next, done, found, nil
}

// trim removes n permits from the set, oldest first, and adds them to value, from which the audit or set_rate has
// taken them. If toZero is true, value rises to 0 at most, even if others do the same at the same time.
//
// Each call removes what the one before has found, up to a member that it names, and what it is to remove counts as
// removed whatever it replies: if the member is no longer there, the call has run before, or the member has expired.
func (l *Limiter) trim(ctx context.Context, typ permit.Type, n int64, toZero bool) error {
	s, flag := l.Scripts.Trim, 0
	if toZero {
		flag = 1
	}
	var part, stay int64
	var member string
	for n > 0 || part > 0 {
		raw, err := l.send(ctx, s, l.Keys.Of(typ), wire(typ), n, flag, part, member, stay)
		if err != nil {
			return err
		}
		f := readerOf(raw)
		f.number() // what this call took out
		if part = f.number(); f.whole() && part == 0 {
			return nil
		}
		member, stay = f.text(), f.number()
		if !f.whole() || part < 1 || part > n {
			return l.badReply(s, raw)
		}
		n -= part
	}
	return nil
}
