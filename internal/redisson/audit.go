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
// hold, so that a release by Java keeps what it freed; if lowered is true, permits that are left are removed
// first. A set that changes faster than it can be read is left for another time.
func (l *Limiter) Audit(ctx context.Context, typ permit.Type, lowered bool) error {
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
				if lowered {
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
	r, ok := raw.([]any)
	if !ok || len(r) == 0 {
		return Tally{}, false, Balance{}, l.badReply(s, raw)
	}
	var head []int64
	for _, v := range r[:min(len(r), 2)] {
		n, ok := v.(int64)
		if !ok {
			return Tally{}, false, Balance{}, l.badReply(s, raw)
		}
		head = append(head, n)
	}
	switch {
	case head[0] == statusStartOver:
		return Tally{}, false, Balance{}, nil
	case head[0] != statusOK:
		return Tally{}, false, Balance{}, l.statusError(head)
	case len(r) == 4 && head[1] == 1:
		var ok1 bool
		found.Surplus, ok1 = r[2].(int64)
		found.Value, ok = r[3].(int64)
		ok, done = ok && ok1, true
	case len(r) == 6:
		var ok1, ok2, ok3, ok4 bool
		next.oldest, ok1 = r[2].(string)
		next.newest, ok2 = r[3].(string)
		next.Members, ok3 = r[4].(int64)
		next.permits, ok4 = r[5].(int64)
		ok = ok1 && ok2 && ok3 && ok4
	default:
		ok = false
	}
	if !ok {
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
		r, ok := raw.([]any)
		if !ok || len(r) != 2 && len(r) != 4 {
			return l.badReply(s, raw)
		}
		if part, ok = r[1].(int64); !ok || part < 0 || part > n || (part > 0) != (len(r) == 4) {
			return l.badReply(s, raw)
		}
		if part == 0 {
			return nil
		}
		var ok1 bool
		member, ok = r[2].(string)
		stay, ok1 = r[3].(int64)
		if !ok || !ok1 {
			return l.badReply(s, raw)
		}
		n -= part
	}
	return nil
}
