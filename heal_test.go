package ratelimiter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestHeal heals each of the states that do not add up, without taking a permit.
func TestHeal(t *testing.T) {
	for name, c := range map[string]struct {
		value  any // nil for none
		grants []uint32
		want   int64
	}{
		"stuck":         {value: 0, want: 10},
		"lost":          {value: 2, grants: []uint32{3, 1}, want: 6},
		"evicted":       {grants: []uint32{3, 1}, want: 6},
		"no number":     {value: "099", grants: []uint32{3}, want: 7},
		"healthy":       {value: 6, grants: []uint32{3, 1}, want: 6},
		"never used":    {want: 10},
		"below nothing": {value: -5, grants: []uint32{3}, want: 7},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
				if c.value != nil {
					w.setValue(c.value)
				}
				for i, n := range c.grants {
					w.put(time.Duration(i)*time.Millisecond, grant(n))
				}
				w.at(time.Second)
				require.NoError(t, w.l.Heal(w.ctx))
				if c.value == nil && c.grants == nil {
					require.Zero(t, w.rdb.Exists(w.ctx, w.valueKey(), w.permitsKey()).Val(), "no keys stand for the rate")
				} else {
					require.Equal(t, c.want, w.value())
					w.settled(10)
				}
				w.granted(c.want)
			})
		})
	}
}

// TestMendsGrantNoMore checks what a state promises after each call that fixes it: in the window that it was found in
// no more is granted than the rate, whatever the permits left said, and one interval later the whole rate is free. A
// check that an acquire makes in passing believes permits left that a release by Redisson may have freed, once.
func TestMendsGrantNoMore(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	const interval = 10 * time.Minute
	states := map[string]struct {
		rate, used int64
		each       int64 // permits of a grant
		value      any   // nil for none
		released   int64 // how many of them a release by Redisson may have freed
	}{
		"all in use, and 50 rates are left":       {rate: 10, used: 10, each: 1, value: 500},
		"one more than the rate is left":          {rate: 10, used: 4, each: 2, value: 11},
		"14 are left":                             {rate: 10, used: 4, each: 1, value: 14},
		"16 are left":                             {rate: 10, used: 4, each: 4, value: 16},
		"twice the rate is left":                  {rate: 10, used: 4, each: 1, value: 20},
		"all in use, and all are left":            {rate: 10, used: 10, each: 5, value: 10, released: 10},
		"released by Redisson, or written so":     {rate: 10, used: 10, each: 1, value: 5, released: 5},
		"a second burst of Redisson's has begun":  {rate: 10, used: 13, each: 1, value: 7, released: 7},
		"lowered by Redisson, of another client":  {rate: 10, used: 5, each: 5, value: 15},
		"lowered below what is in use":            {rate: 10, used: 15, each: 3, value: 5, released: 5},
		"fewer than none are left, and too many":  {rate: 10, used: 15, each: 3, value: -3},
		"the value is lost":                       {rate: 10, used: 4, each: 2},
		"the value is no number":                  {rate: 10, used: 4, each: 2, value: "007"},
		"permits were lost":                       {rate: 10, used: 4, each: 2, value: 1},
		"more members than one call reads":        {rate: 910, used: 900, each: 1, value: 50, released: 40},
		"the same, and more than the rate left":   {rate: 910, used: 900, each: 1, value: 5000},
		"the same, and more than the rate in use": {rate: 700, used: 900, each: 1, value: 30, released: 30},
	}
	const check = "a check"
	fixes := map[string]func(w *world, r Rate) error{
		"Heal": func(w *world, _ Rate) error { return w.l.Heal(w.ctx) },
		check: func(w *world, r Rate) error {
			a := w.ask(permit.Batch{ID: redisson.RandomID(), Runs: []permit.Run{{Permits: 1, Count: 1}}, Type: permit.Type(r.Type), Check: true, DryRun: true})
			if a.Next == permit.Heal {
				return w.l.redis.Heal(w.ctx, permit.Type(r.Type), permit.Checked)
			}
			return nil
		},
		"SetRate":    func(w *world, r Rate) error { return w.l.SetRate(w.ctx, r, KeepState()) },
		"UpdateRate": func(w *world, r Rate) error { _, err := w.l.UpdateRate(w.ctx, r, KeepState()); return err },
	}
	for _, field := range []string{"rate", "interval", "type", "rate, interval, type, keepAliveTime"} { // the last is the whole hash
		fixes["SetRate, without "+field] = func(w *world, r Rate) error {
			require.NoError(w.t, w.rdb.HDel(w.ctx, w.l.Name(), strings.Split(field, ", ")...).Err())
			return fixes["SetRate"](w, r)
		}
	}
	for name, s := range states {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Rate{}, func(t *testing.T, w *world) {
				for fix, f := range fixes {
					for _, typ := range []RateType{Overall, PerClient} {
						what := fmt.Sprint(fix, ", ", typ)
						r := Rate{Type: typ, Permits: s.rate, Interval: interval}
						w.l, w.epoch = w.client.RateLimiter(fmt.Sprint(redistest.Key(t), fix, typ)), time.Now()
						require.NoError(t, w.l.SetRate(w.ctx, r))
						log := &windowLog{}
						for i := range s.used / s.each {
							at := time.Duration(i) * time.Millisecond
							w.put(at, grant(uint32(s.each)))
							log.add(at, s.each)
						}
						if s.value != nil {
							w.setValue(s.value)
						}
						w.at(time.Minute)
						require.NoError(t, f(w, r), what)
						w.settled(s.rate)
						released := int64(0)
						if fix == check {
							released = s.released
						}
						left := max(0, s.rate-s.used) + released
						w.available(left)
						for rejected := 0; rejected < 2; { // the first may be followed by a check
							if w.try(1).Granted {
								log.add(w.elapsed(), 1)
							} else {
								rejected++
							}
						}
						w.available(0)
						require.LessOrEqual(t, log.worst(interval), max(s.rate, s.used)+released, "%s, in the window", what)
						w.at(time.Minute + interval)
						w.granted(s.rate)
						w.rejected(1, interval)
						w.settled(s.rate)
					}
				}
			})
		})
	}
}

func TestHealOfNoLimiter(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		require.ErrorIs(t, w.l.Heal(w.ctx), ErrNotInitialized)
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "rate", "0", "interval", 1, "type", 0).Err())
		require.ErrorIs(t, w.l.Heal(w.ctx), ErrMalformed)
	})
}
