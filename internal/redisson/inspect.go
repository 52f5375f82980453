// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// inspectMembers is how many members Inspect reads. A person looks through no more, and reading them takes Redis a
// tenth of a millisecond.
const inspectMembers = 100

// A State is what Redis holds of a limiter at one instant.
type State struct {
	Time        time.Time
	Fields      map[string]string
	Rate        permit.Rate // that the fields hold
	Value       string
	HasValue    bool
	MemberCount int64
	Members     []StoredMember // the newest ones
}

// A StoredMember is one member with its score.
type StoredMember struct {
	Raw  []byte
	Time time.Time
}

// Inspect reads the limiter's keys in one call. If the limiter has no rate, or its hash is not that of a
// limiter, Inspect returns an error together with the State as far as it can be read.
func (l *Limiter) Inspect() permit.Op[State] {
	return typed(l, l.Scripts.Inspect, func(ctx context.Context, typ permit.Type) (state State, more bool, err error) {
		state, err = l.inspect(ctx, typ)
		return state, false, err
	})
}

func (l *Limiter) inspect(ctx context.Context, typ permit.Type) (State, error) {
	s := l.Scripts.Inspect
	raw, err := l.send(ctx, s, l.Keys.Of(typ), wire(typ), l.now(), inspectMembers)
	if err != nil {
		return State{}, err
	}
	r, ok := raw.([]any)
	if !ok || len(r) == 0 {
		return State{}, l.badReply(s, raw)
	}
	if r[0] == int64(statusOtherType) {
		return State{}, &permit.WrongTypeError{Type: typ.Other()}
	}
	state, ok := readState(r)
	if !ok {
		return State{}, l.badReply(s, raw)
	}
	state.Rate, err = parseRate(state.Fields)
	switch {
	case errors.Is(err, permit.ErrNotInitialized):
		err = l.statusError([]int64{statusNotInitialized})
	case err != nil:
		err = fmt.Errorf("%w (limiter %q)", err, l.Name)
	}
	return state, err
}

// readState parses the reply of the script. It reports false if it cannot.
func readState(r []any) (State, bool) {
	f, s := replyReader{list: r}, State{Fields: map[string]string{}}
	if f.number() != statusOK {
		f.bad = true
	}
	s.Time = time.UnixMilli(f.number())
	fields := replyReader{list: element[[]any](&f)}
	if len(f.list) > 0 && f.list[0] == nil {
		f.list = f.list[1:]
	} else {
		s.Value, s.HasValue = f.text(), true
	}
	s.MemberCount = f.number()
	members := replyReader{list: element[[]any](&f)}
	for len(fields.list) > 0 && !fields.bad {
		name := fields.text()
		s.Fields[name] = fields.text()
	}
	for len(members.list) > 0 && !members.bad {
		raw := members.text()
		score, err := strconv.ParseFloat(members.text(), 64)
		members.bad = members.bad || err != nil
		s.Members = append(s.Members, StoredMember{Raw: []byte(raw), Time: scoreTime(score)})
	}
	return s, f.whole() && fields.whole() && members.whole()
}

// PTTL returns the reply of the command PTTL as a duration, and the replies -1 and -2 unchanged. If the reply exceeds
// a Duration, PTTL returns the longest Duration.
func PTTL(n int64) time.Duration {
	if n < 0 {
		return time.Duration(n)
	}
	return ms(n)
}

// scoreTime returns a score as an instant. A score that is not a time in ms, infinity for instance, becomes an
// instant some 36 million years away, to which an interval can still be added.
func scoreTime(score float64) time.Time {
	const limit = 1 << 60
	return time.UnixMilli(int64(max(-limit, min(limit, score))))
}
