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
	Type                          permit.Type // whose keys were read
	Time                          time.Time
	HashTTL, ValueTTL, PermitsTTL time.Duration // or -1 or -2 as in Redis
	Fields                        map[string]string
	Rate                          permit.Rate // that the fields hold
	Value                         string
	HasValue                      bool
	MemberCount                   int64
	Members                       []StoredMember // the newest ones
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
		state.Type = typ
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
	if len(r) != 9 || r[0] != int64(statusOK) {
		return State{}, false
	}
	now, ok1 := r[1].(int64)
	fields, ok2 := r[2].([]any)
	value, hasValue := r[3].(string)
	count, ok3 := r[4].(int64)
	members, ok4 := r[5].([]any)
	hashTTL, ok5 := r[6].(int64)
	valueTTL, ok6 := r[7].(int64)
	permitsTTL, ok7 := r[8].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || len(fields)%2 != 0 || len(members)%2 != 0 {
		return State{}, false
	}
	s := State{
		Time:        time.UnixMilli(now),
		HashTTL:     PTTL(hashTTL),
		ValueTTL:    PTTL(valueTTL),
		PermitsTTL:  PTTL(permitsTTL),
		Fields:      make(map[string]string, len(fields)/2),
		Value:       value,
		HasValue:    hasValue,
		MemberCount: count,
		Members:     make([]StoredMember, 0, len(members)/2),
	}
	for i := 0; i < len(fields); i += 2 {
		name, ok1 := fields[i].(string)
		v, ok2 := fields[i+1].(string)
		if !ok1 || !ok2 {
			return State{}, false
		}
		s.Fields[name] = v
	}
	for i := 0; i < len(members); i += 2 {
		b, ok1 := members[i].(string)
		text, ok2 := members[i+1].(string)
		score, err := strconv.ParseFloat(text, 64)
		if !ok1 || !ok2 || err != nil {
			return State{}, false
		}
		s.Members = append(s.Members, StoredMember{Raw: []byte(b), Time: scoreTime(score)})
	}
	return s, true
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
