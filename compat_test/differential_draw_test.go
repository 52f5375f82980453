// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// What a world draws: limiters, operations, steps of time, and damage.

var (
	twinRates     = []int64{1, 2, 3, 10, 20, 100, 1000, 70_000, twinMaxValue}
	twinIntervals = []int64{1, 7, 250, 1000, 10_000, 3_600_000}
	twinTTLs      = []int64{0, 0, 0, 10 * 60_000, 3 * 3_600_000}
)

// pick returns a random element of list.
func pick[T any](w *twinWorld, list []T) T { return list[w.rng.IntN(len(list))] }

// begin draws the limiter's first state: a rate, sometimes one that an old Redisson wrote and sometimes none at all,
// and, in a big world, a burst of grants.
func (w *twinWorld) begin() {
	s := &w.ours
	s.hash = map[string]string{}
	rate := w.rateOp("setRate")
	all := w.jar.version.since("4.4.0")
	if w.big {
		rate.typ = "0" // only small worlds have what another client's setRate leaves behind
	}
	if w.big || !all || w.rng.IntN(4) > 0 {
		s.hash = map[string]string{"rate": strconv.FormatInt(rate.rate, 10), "interval": strconv.FormatInt(rate.interval, 10), "type": rate.typ}
		if all && w.rng.IntN(4) > 0 {
			s.hash["keepAliveTime"] = "0"
		}
		s.hashTTL = noTTL
	}
	if !w.big {
		return
	}
	rate.interval = pick(w, twinIntervals[2:])
	s.hash["interval"] = strconv.FormatInt(rate.interval, 10)
	n := pick(w, []int{60, 63, 64, 65, 100, 200, 511, 512, 513, 576, 1100})
	slot := &s.slots[slotOf(rate.typ, 0)]
	first := time.Now().UnixMilli() - rate.interval/4
	for i := range n { // within a quarter of the interval, so that none has expired yet
		permits := 1 + w.rng.Int64N(3)
		slot.members = append(slot.members, twinMember{
			first + int64(i)*rate.interval/4/int64(n), permits, memberOf(w.jar.version, permits),
		})
	}
	slices.SortFunc(slot.members, func(m, n twinMember) int { // in the order of ZRANGE
		return cmp.Or(cmp.Compare(m.score, n.score), strings.Compare(m.raw, n.raw))
	})
	s.hash["rate"] = strconv.FormatInt(slot.members.total()+w.rng.Int64N(50), 10)
	slot.has, slot.value = true, s.number("rate")-slot.members.total()
	slot.valueTTL, slot.permitsTTL = noTTL, noTTL
	if w.rng.IntN(4) > 0 { // all or a part of it
		time.Sleep(time.Duration(rate.interval*pick(w, []int64{80, 90, 100, 200})/100) * time.Millisecond)
	}
}

// operation draws an operation. Before 4.4.0 it draws only those whose meaning has not changed since.
func (w *twinWorld) operation() twinOp {
	op := twinOp{name: "tryAcquire", client: w.rng.IntN(2)}
	all := w.jar.version.since("4.4.0")
	switch p := w.rng.IntN(200); {
	case w.ours.hashTTL == noKey && p < 80:
		op = w.rateOp(pick(w, []string{"trySetRate", "trySetRate", "setRate", "setRateArgs", "updateRate"}))
	case p < 16:
		op.name = "availablePermits"
	case p < 34 && all:
		op.name, op.permits = "release", w.permits()
	case p < 38 && all:
		op = w.rateOp("trySetRate")
	case p < 41 && all:
		op = w.rateOp("setRate")
	case p < 47 && all:
		op = w.rateOp("setRateArgs")
	case p < 53 && all:
		op = w.rateOp("updateRate")
	case p < 56 && all:
		op.name, op.ttl = "expire", pick(w, []int64{20 * 60_000, 90 * 60_000, 24 * 3_600_000})
	case p < 58 && all:
		op.name = "clearExpire"
	case p < 59 && all:
		op.name = "delete"
	default:
		op.permits = w.permits()
	}
	return op
}

// permits draws the permits of a request: mostly a few, sometimes any number up to the rate, more than the rate, or a
// number that is invalid.
func (w *twinWorld) permits() int64 {
	rate := max(1, w.ours.number("rate"))
	switch w.rng.IntN(40) {
	case 0:
		return rate + 1
	case 1:
		return rate
	case 2, 3, 4:
		return max(1, rate/2)
	case 5, 6, 7, 8, 9, 10, 11, 12:
		return 1 + w.rng.Int64N(rate)
	case 13, 14, 15, 16, 17, 18:
		return max(1, rate/7)
	case 19:
		return pick(w, []int64{0, -1, -5, twinMaxValue + 2})
	}
	return 1 + w.rng.Int64N(min(3, rate))
}

// rateOp draws a rate, most often one near the limiter's own.
func (w *twinWorld) rateOp(name string) twinOp {
	op := twinOp{name: name, client: w.rng.IntN(2), typ: pick(w, []string{"0", "0", "1"}), keep: w.rng.IntN(3) > 0}
	op.rate, op.interval = pick(w, twinRates), pick(w, twinIntervals)
	if w.ours.initialized() {
		if w.rng.IntN(4) > 0 {
			op.typ = w.ours.hash["type"]
		}
		if rate := w.ours.number("rate"); w.rng.IntN(2) == 0 && rate < 1<<31 {
			op.rate = pick(w, []int64{rate, max(1, rate/2), max(1, rate-1), rate + 1, 2 * rate})
		}
		if w.rng.IntN(2) == 0 {
			op.interval = w.ours.number("interval")
		}
	}
	if op.keepAlive = pick(w, twinTTLs); op.keepAlive > 0 {
		op.keepAlive += 2 * op.interval
	}
	if name != "setRateArgs" && name != "updateRate" {
		op.keep = false
	}
	if w.ours.initialized() && w.rng.IntN(25) == 0 {
		if w.rng.IntN(2) == 0 {
			op.rate = pick(w, []int64{0, -3})
		} else {
			op.interval, op.keepAlive = pick(w, []int64{0, -1000}), 0
		}
	}
	if !w.jar.version.since("3.38.0") {
		op.keepAlive = 0
	}
	return op
}

// sleep lets time pass: about an interval, a part of it, or about the keep-alive.
func (w *twinWorld) sleep(ctx context.Context) error {
	interval := max(1, w.ours.number("interval"))
	d := pick(w, []int64{1, 2, interval / 20, interval / 3, interval / 2, interval - 1, interval, interval + 1, 5 * interval})
	if w.ours.hashTTL > 0 && w.rng.IntN(6) == 0 {
		d = w.ours.hashTTL - pick(w, []int64{2 * lastMinute, 0, -lastMinute})
	}
	if slot := w.ours.slots[w.rng.IntN(3)]; len(slot.members) > 0 && w.rng.IntN(3) == 0 {
		// Sleep to the very millisecond at which a grant expires, or the one before or after.
		d = pick(w, slot.members).score + interval - time.Now().UnixMilli() + w.rng.Int64N(3) - 1
	}
	if d <= 0 {
		return nil
	}
	w.note("sleep %d", d)
	time.Sleep(time.Duration(d) * time.Millisecond)
	if d < 1000 {
		return nil // no TTL is that short
	}
	return w.age(ctx, d)
}

// age makes TTLs pass by the bubble's clock: those of Redis run in real time, of which hardly any passes. It takes
// off slightly more than d, so that no two TTLs become equal by the arithmetic of this file.
func (w *twinWorld) age(ctx context.Context, d int64) error {
	d += 7919
	pipe := w.rdb.Pipeline()
	ttl := func(key int, ttl *int64) (expired bool) {
		if *ttl < 0 {
			return false
		}
		*ttl -= d
		if expired = *ttl <= lastMinute; expired {
			*ttl = noKey
		}
		for _, keys := range w.keys[:2] {
			if expired {
				pipe.Del(ctx, keys[key])
			} else {
				pipe.Do(ctx, "pexpire", keys[key], *ttl)
			}
		}
		return expired
	}
	s := &w.ours
	if ttl(0, &s.hashTTL) {
		s.hash = map[string]string{}
	}
	for i := range s.slots {
		slot := &s.slots[i]
		if ttl(1+2*i, &slot.valueTTL) {
			slot.has, slot.value = false, 0
		}
		if ttl(2+2*i, &slot.permitsTTL) {
			slot.members = nil
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	w.note("  %v", w.ours)
	_, err := pipe.Exec(ctx)
	return err
}

// damage does to both limiters what can happen to Redisson's: a key is evicted, or a script is sent twice.
func (w *twinWorld) damage(ctx context.Context) error {
	client := w.rng.IntN(2)
	slot := slotOf(w.ours.hash["type"], client)
	pipe := w.rdb.Pipeline()
	kind := w.rng.IntN(6)
	for i, keys := range w.keys[:2] {
		switch kind {
		case 0:
			pipe.Del(ctx, keys[1+2*slot])
		case 1:
			pipe.Del(ctx, keys[2+2*slot])
		default:
			op := twinOp{name: "tryAcquire", client: client, permits: max(1, w.ours.number("rate")/int64(kind))}
			random := w.jar.random(uint64(len(w.history) + w.operations))
			for range 2 {
				w.jar.send(ctx, pipe, op, w.name[i], w.ids[client], time.Now().UnixMilli(), random)
			}
		}
	}
	looks := []*redis.Cmd{twinLook.Eval(ctx, pipe, w.keys[0]), twinLook.Eval(ctx, pipe, w.keys[1])}
	_, _ = pipe.Exec(ctx)
	var err error
	if w.ours, err = parseState(looks[0]); err != nil {
		return err
	}
	w.note("damage %d: %v", kind, w.ours)
	w.theirs, err = parseState(looks[1])
	return err
}
