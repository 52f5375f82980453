// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"encoding/hex"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Refund makes one attempt at giving back the permits of g that are not kept. If more are kept than g has, it takes
// the difference.
func (l *Limiter) Refund(ctx context.Context, typ permit.Type, g permit.Grant) error {
	var smaller []byte
	if g.Keep > 0 {
		smaller = Member(l.LongLength, g.ID, uint32(g.Keep))
	}
	cmd, err := l.Scripts.GiveBack.Command(l.Keys.Of(typ), wire(typ), Member(l.LongLength, g.ID, uint32(g.Permits)), smaller, g.Permits-g.Keep, l.now())
	if err != nil {
		return err
	}
	_, err = l.once(ctx, l.Scripts.GiveBack, cmd, 1, false)
	return err
}

// refunded returns how many permits a call of give_back gave back.
func refunded(raw any, cmd []any) int64 {
	if r, ok := raw.([]any); !ok || len(r) != 2 || r[0] != int64(statusOK) || r[1] != int64(1) {
		return 0 // the grant has expired, or is no longer there
	}
	n, _ := cmd[len(cmd)-2].(int64)
	return max(n, 0)
}

// Reserve makes one attempt at a reservation. Its errors are like those of [Limiter.Acquire]. If the limiter has got
// another type than that of v, the permits held are in keys that are no longer in use, and the reservation starts
// over.
func (l *Limiter) Reserve(ctx context.Context, v permit.Reservation) (a permit.Reserved, err error) {
	if l.hints != nil && v.Held == 0 && !v.Unsure {
		v.Type = l.Type()
	}
	for changes := 0; ; v.Held, v.Unsure = 0, false {
		a, err = l.reserve(ctx, v)
		if again, err := l.hasOtherType("acquire", err, &v.Type, &changes); !again {
			return a, err
		}
	}
}

func (l *Limiter) reserve(ctx context.Context, v permit.Reservation) (permit.Reserved, error) {
	ahead, fields, s := "", 4, l.Scripts.Reserve
	if v.Ahead {
		ahead, fields = hex.EncodeToString(v.ID[:]), 7
	}
	cmd, err := s.Command(append(l.Keys.Of(v.Type), l.Keys.Ahead(v.Type)), wire(v.Type), v.Want, Member(l.LongLength, v.ID, uint32(v.Held)),
		v.Held, words(word{v.Unsure, "unsure"}, word{l.SharedClock, "mark"}, word{v.Part, "part"}), l.now(), l.KeyTTL.Milliseconds(), ahead, v.Waited.Milliseconds())
	if err != nil {
		return permit.Reserved{}, err
	}
	raw, err := l.once(ctx, s, cmd, 1, v.Unsure)
	if err != nil {
		return permit.Reserved{}, err
	}
	r, err := l.numbers(s, raw)
	if err != nil {
		return permit.Reserved{}, err
	}
	if r[0] == statusExceeds && len(r) == 2 {
		return permit.Reserved{}, permit.Exceeds(l.Name, v.Want, 0, r[1])
	}
	if err := l.statusError(r); err != nil {
		return permit.Reserved{}, err
	}
	if len(r) != fields || r[1] < 0 || r[1] > permit.Max {
		return permit.Reserved{}, l.badReply(s, raw)
	}
	a := permit.Reserved{Held: r[1], Rate: permit.Rate{Type: v.Type, Permits: r[2], Interval: ms(r[3])}}
	if v.Ahead {
		a.Lacking, a.Wait, a.Place = r[4], ms(r[5]), r[6]
	}
	return a, nil
}
