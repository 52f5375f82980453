// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

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
		"stuck":                                   {rate: 10, value: 0},
		"healthy":                                 {rate: 10, used: 4, each: 1, value: 6},
		"more members than one call reads":        {rate: 910, used: 900, each: 1, value: 50, released: 40},
		"the same, and more than the rate left":   {rate: 910, used: 900, each: 1, value: 5000},
		"the same, and more than the rate in use": {rate: 700, used: 900, each: 1, value: 30, released: 30},
	}
	const check = "a check"
	fixes := map[string]func(w *world, r Rate) error{
		"Heal": func(w *world, _ Rate) error { return w.l.Admin().Heal(w.ctx) },
		check: func(w *world, r Rate) error {
			a := w.ask(permit.Batch{ID: redisson.RandomID(), Runs: []permit.Run{{Permits: 1, Count: 1}}, Type: permit.Type(r.Type), Check: permit.Checked, DryRun: true})
			if a.Next == permit.Heal {
				return healed(w.ctx, w.l, permit.Type(r.Type), permit.Checked)
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
						var log grantlog.Ledger
						for i := range s.used / max(1, s.each) {
							at := time.Duration(i) * time.Millisecond
							w.put(at, grant(uint32(s.each)))
							log.Add(grantlog.At(w.epoch.Add(at), s.each))
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
								log.Add(grantlog.At(time.Now(), 1))
							} else {
								rejected++
							}
						}
						w.available(0)
						require.LessOrEqual(t, log.Told().Most(interval), max(s.rate, s.used)+released, "%s, in the window", what)
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
		require.ErrorIs(t, w.l.Admin().Heal(w.ctx), ErrNotInitialized)
		require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Minute)))
		require.NoError(t, w.l.Admin().Heal(w.ctx))
		require.Zero(t, w.rdb.Exists(w.ctx, w.valueKey(), w.permitsKey()).Val(), "of one never used: no keys stand for the rate")
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "rate", "0", "interval", 1, "type", 0).Err())
		require.ErrorIs(t, w.l.Admin().Heal(w.ctx), ErrMalformed)
	})
}

// An overFull is a state whose value and members exceed the rate, with a value that does not.
type overFull struct {
	rate, value, used int64
}

// These states have been seen. With an interval of a second, the permits in use are spread evenly over it.
var overFullStates = map[string]overFull{
	"a rate that another client lowered":    {rate: 5, used: 10},
	"a release of Java's":                   {rate: 10, value: 5, used: 10},
	"updateRate of Java's, state kept":      {rate: 5, used: 8},
	"a hash that was evicted and set again": {rate: 5, used: 10},
	"half of each":                          {rate: 5, value: 5, used: 5},
	"a value below 0":                       {rate: 5, value: -3, used: 15},
}

// make puts the state into the keys, each permit as a member of its own. The first expires at once, so that
// no caller is rejected.
func (s overFull) make(w *world, r Rate) {
	w.t.Helper()
	for i := range s.used {
		w.put(w.elapsed()-r.Interval+time.Duration(i)*r.Interval/time.Duration(s.used), grant(1))
	}
	w.setValue(s.value)
}

// TestOverFullStatesAreBroughtDown has a caller that asks for exactly what the state grants and is never
// rejected. Still no window may hold more than the rate, from one interval and one call on.
func TestOverFullStatesAreBroughtDown(t *testing.T) {
	redistest.NoRace(t, "the engine is tested with it")
	for name, state := range overFullStates {
		for _, scale := range []int64{1, 200} {
			for _, how := range []string{"known before", "seen first so", "in lists"} {
				if scale > 1 && how != "known before" && !redistest.Long() {
					continue
				}
				t.Run(fmt.Sprint(name, "/", scale, "/", how), func(t *testing.T) {
					s := overFull{state.rate * scale, state.value * scale, state.used * scale}
					r := Rate{Type: PerClient, Permits: s.rate, Interval: time.Second}
					inWorld(t, r, func(t *testing.T, w *world) {
						if how == "known before" {
							require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: s.rate + s.value + s.used, Interval: time.Second}))
							w.granted(1)
							require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", s.rate).Err())
							require.NoError(t, w.rdb.Del(w.ctx, w.permitsKey()).Err())
						}
						s.make(w, r)
						s.demand(w, how == "in lists", r)
					})
				})
			}
		}
	}
}

// demand asks for all that the state grants in an interval, evenly and for five intervals.
func (s overFull) demand(w *world, lists bool, r Rate) {
	w.t.Helper()
	begin, every := w.elapsed(), r.Interval/time.Duration(max(s.used, s.value+s.used))
	permits := int64(1)
	for every < 10*time.Millisecond { // larger requests if the rate is large
		every, permits = every*10, permits*10
	}
	every = every.Truncate(time.Millisecond)
	var log grantlog.Ledger
	other := w.client.RateLimiter(w.l.Name() + "#other")
	for i := 0; other.handle.IsBeside(&w.l.handle); i++ { // one of 512, and then neither knows when a check is due
		other = w.client.RateLimiter(fmt.Sprint(w.l.Name(), "#other", i))
	}
	require.NoError(w.t, other.SetRate(w.ctx, overall(1_000_000, time.Millisecond)))
	for i := 0; w.elapsed() < begin+5*r.Interval; i++ {
		w.at(begin + time.Duration(i)*every)
		ok := false
		if lists {
			a := must(w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, permits}, Demand{other, 1}))(w.t)
			ok = a.Granted
		} else {
			ok = w.try(permits).Granted
		}
		if ok && w.elapsed() >= begin+r.Interval+2*every {
			log.Add(grantlog.At(time.Now(), permits))
		}
	}
	require.LessOrEqual(w.t, log.Told().Most(r.Interval), r.Permits, "permits in a window")
	require.GreaterOrEqual(w.t, log.Told().Most(r.Interval), r.Permits-permits, "and they are used")
	w.settled(r.Permits)
}

// TestOverFullAnyState checks that whatever value and the members are, a call that checks, and heal, leave exactly the
// rate, as an exact model does: after the rate was lowered, value falls, below 0 if need be. Otherwise the oldest members go.
func TestOverFullAnyState(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		proptest.Check(t, func(rt *rapid.T) {
			rate := rapid.Int64Range(1, 40).Draw(rt, "rate")
			require.NoError(rt, w.l.SetRate(w.ctx, overall(rate, time.Second)))
			var ages []int
			var members []int64
			used, expired := int64(0), int64(0)
			value := rapid.Int64Range(-10, rate).Draw(rt, "value")
			age := rapid.IntRange(0, 1300).Draw(rt, "age")
			for range rapid.IntRange(1, 20).Draw(rt, "members") {
				n := rapid.Int64Range(1, 9).Draw(rt, "permits")
				w.put(w.elapsed()-time.Duration(age)*time.Millisecond, grant(uint32(n)))
				if ages = append(ages, age); age >= 1000 {
					expired += n
				} else {
					members, used = append(members, n), used+n
				}
				age = max(0, age-rapid.IntRange(1, 200).Draw(rt, "younger"))
				if age == 0 {
					break
				}
			}
			w.setValue(value)
			lowered := rapid.Bool().Draw(rt, "lowered")
			value += expired
			if value > rate {
				value = rate - used
			}
			over := value + used - rate
			if over < 0 || used == 0 {
				value, over = rate-used, 0
			}
			if lowered {
				value, over = rate-used, 0
			}
			for i := range members {
				n := min(max(0, over), members[i])
				members[i], over, used = members[i]-n, over-n, used-n
			}
			n := rapid.Int64Range(1, rate).Draw(rt, "asked")
			b := permit.Batch{ID: redisson.RandomID(), Runs: []permit.Run{{Permits: n, Count: 1}}, Check: permit.Checked}
			a := w.ask(b)
			if a.Next == permit.Heal {
				require.NoError(rt, healed(w.ctx, w.l, permit.Overall, causeOf(lowered)))
				a = w.ask(b)
			}
			require.NotEqual(rt, permit.Heal, a.Next, "once is enough")
			require.Equal(rt, value >= n, a.Granted[0] == 1, "%d asked, %d left, %v in use, %v old", n, value, members, ages)
			if value >= n {
				value, used = value-n, used+n
			}
			require.Equal(rt, value, w.value())
			got, _ := w.used()
			require.Equal(rt, used, got)
			require.Equal(rt, rate, value+used)
		})
	})
}

func causeOf(believed bool) permit.HealCause {
	if believed {
		return permit.Believed
	}
	return permit.Checked
}

// TestHealBesideSettlements settles a grant that heal has counted, while it has the rest of the set still to add up. What is
// left and what is used add up to the rate all the same.
func TestHealBesideSettlements(t *testing.T) {
	const rate, grants, each = 200_000, 1500, 100
	for name, change := range map[string]struct {
		used int64 // what the grant in the middle is settled to
		more func(w *world) error
	}{
		"to more":    {used: 40_000},
		"to one":     {used: 1},
		"to nothing": {used: 0},
		"and more is granted": {1, func(w *world) error {
			_, err := w.l.TryAcquire(w.ctx, 7, 0)
			return err
		}},
		"and a part is released": {1, func(w *world) error { return w.l.Release(w.ctx, 130) }},
		"while another heals":    {1, func(w *world) error { return w.otherProcess().RateLimiter(w.l.Name()).Admin().Heal(w.ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(rate, time.Hour), func(t *testing.T, w *world) {
				w.fill(0, grants-20)
				w.setValue(rate - (grants - 20))
				var list []*Grant
				for range 20 {
					time.Sleep(time.Millisecond)
					list = append(list, must(w.l.AcquireGrant(w.ctx, each))(t))
				}
				var state redisson.HealState
				for done, settled := false, false; !done; settled = true {
					var err error
					state, done, err = w.l.redis.HealStep(w.ctx, permit.Overall, permit.Checked, 1000, state)
					require.NoError(t, err)
					if !settled {
						require.False(t, done)
						require.NoError(t, list[10].Settle(w.ctx, change.used))
						if change.more != nil {
							require.NoError(t, change.more(w))
						}
					}
				}
				used, _ := w.used()
				w.holds(w.l, rate, used)
				if change.more == nil {
					require.EqualValues(t, grants-20+19*each+change.used, used)
				}
				require.EqualValues(t, rate-used, must(w.l.AvailablePermits(w.ctx))(t))
				fields := must(w.rdb.HKeys(w.ctx, w.l.Name()).Result())(t)
				require.NotContains(t, fields, w.permitsKey(), "nothing is left behind")
			})
		})
	}
}

// TestChecksAreFew checks that a limiter in use makes one check an interval, and that one which is rarely
// asked, or is soon evicted, hardly ever makes any.
func TestChecksAreFew(t *testing.T) {
	redistest.NeedReal(t) // miniredis would take a minute
	redistest.Repeats(t)
	checks := func(w *world, f func()) (n int) {
		onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if a := cmd.Args(); len(a) > 10 && a[0] == "evalsha" && a[2] == 3 {
				if words, ok := a[10].([]byte); ok && strings.Contains(string(words), "check") {
					n++
				}
			}
			return next(ctx, cmd)
		})
		f()
		return n
	}
	inWorld(t, overall(100, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		n := checks(w, func() {
			for range 1000 {
				time.Sleep(20 * time.Millisecond)
				w.granted(1)
			}
		})
		require.Contains(t, []int{15, 16}, n, "one in 64 of 50 calls a second")
	})
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		const calls = 1 << 11
		for _, limiters := range []int{1, 100, 500} {
			for _, often := range []int{1, 2, 7, 64} {
				if limiters*often > calls {
					continue // no interval passes
				}
				name := func(i int) string { return fmt.Sprint(w.l.Name(), limiters, often, i) }
				for i := range limiters {
					require.NoError(t, w.client.RateLimiter(name(i)).SetRate(w.ctx, overall(100, time.Second)))
				}
				n := checks(w, func() {
					for i := range calls {
						must(w.client.RateLimiter(name(i%limiters)).Allow(w.ctx, 1))(t)
						if i%(limiters*often) == limiters*often-1 {
							time.Sleep(1100 * time.Millisecond) // each has been asked so often in this interval
						}
					}
				})
				require.LessOrEqual(t, n, (calls+limiters)/redisson.CheckSample+5*8, "%d limiters, %d calls an interval", limiters, often)
				for i := range limiters {
					must(w.client.RateLimiter(name(i)).Admin().Delete(w.ctx))(t)
				}
			}
		}
	})
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(10)
		time.Sleep(2 * time.Second)
		w.granted(10)
		n := checks(w, func() {
			for range 100 {
				require.False(t, w.try(1).Granted)
			}
		})
		require.Equal(t, 1, n, "rejections of one interval look for lost permits once")
	})
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		const limiters, calls = 2000, 4000
		for i := range limiters {
			require.NoError(t, w.client.RateLimiter(fmt.Sprint(w.l.Name(), i)).SetRate(w.ctx, overall(100, time.Second)))
		}
		n := checks(w, func() {
			for i := range calls {
				must(w.client.RateLimiter(fmt.Sprint(w.l.Name(), i%limiters)).Allow(w.ctx, 1))(t)
				time.Sleep(time.Millisecond)
			}
		})
		require.InDelta(t, calls/redisson.CheckSample, n, 55, "one call in 64")
		for i := range limiters {
			must(w.client.RateLimiter(fmt.Sprint(w.l.Name(), i)).Admin().Delete(w.ctx))(t)
		}
	})
}

// ahead puts n grants of one permit each into the set, d ahead of the clock of Redis and a millisecond apart.
func (w *world) ahead(d time.Duration, n int) {
	w.t.Helper()
	at, zs := w.rdb.Time(w.ctx).Val().Add(d), make([]redis.Z, n)
	if !redistest.TTLsAreVirtual() && w.client.cfg.clientClock {
		at = time.Now().Add(d)
	}
	for i := range zs {
		zs[i] = redis.Z{Score: float64(at.UnixMilli() + int64(i)), Member: grant(1)}
	}
	require.NoError(w.t, w.rdb.ZAdd(w.ctx, w.permitsKey(), zs...).Err())
}

// marked returns how many members of the set are marks.
func (w *world) marked() (n int) {
	for _, m := range w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val() {
		if strings.HasPrefix(m, "\x10~t~") {
			n++
		}
	}
	return n
}

// TestThousandsOfScoresInTheFuture checks that the permits that peers with fast clocks took are back one interval after
// the first rejection, however many members they are.
func TestThousandsOfScoresInTheFuture(t *testing.T) {
	n := 5000
	if redistest.TTLsAreVirtual() {
		n = 1000 // on miniredis thousands take long
	}
	t.Run("one peer", func(t *testing.T) {
		inWorld(t, overall(int64(n), time.Second), func(t *testing.T, w *world) {
			w.ahead(time.Minute, n)
			w.setValue(0)
			w.rejected(1, time.Second)
			require.Equal(t, n, w.marked())
			require.True(t, must(w.l.TryAcquire(w.ctx, int64(n), time.Hour))(t))
			require.Equal(t, time.Second, w.elapsed())
			w.rejected(1, time.Second)
			w.settled(int64(n))
		})
	})
	t.Run("two peers, the slower one later", func(t *testing.T) {
		inWorld(t, overall(2*int64(n), time.Second), func(t *testing.T, w *world) {
			w.ahead(time.Minute, n)
			w.setValue(n)
			w.rejected(2*int64(n), time.Second)
			w.at(500 * time.Millisecond)
			w.ahead(30*time.Second, n)
			w.setValue(0)
			require.False(t, w.try(1).Granted)
			require.GreaterOrEqual(t, w.marked(), 2*n*97/100, "the calls after one rejection look at 32 places")
			for w.marked() < 2*n && w.elapsed() < 540*time.Millisecond { // and those of a later one at others
				time.Sleep(time.Millisecond)
				require.False(t, w.try(1).Granted)
			}
			require.Equal(t, 2*n, w.marked())
			require.True(t, must(w.l.TryAcquire(w.ctx, 2*int64(n), time.Hour))(t))
			require.LessOrEqual(t, w.elapsed(), 1540*time.Millisecond)
			w.settled(2 * int64(n))
		})
	})
}

// TestPermitsOfAFastClockAreBackAfterAnInterval checks the instant at which the permits of a peer with a fast clock are
// back, for a process that did not check the state at that instant. The score of the grant lies 5 s ahead at first, and
// has passed when its permits are back.
func TestPermitsOfAFastClockAreBackAfterAnInterval(t *testing.T) {
	const interval = 20 * time.Second
	for name, takes := range map[string]func(w *world){
		"a try":            func(w *world) { w.at(interval); w.granted(10) },
		"a waiter":         func(w *world) { require.NoError(w.t, w.l.Acquire(w.ctx, 10)) },
		"AvailablePermits": func(w *world) { w.at(interval); w.available(10) },
		"a list": func(w *world) {
			w.at(interval)
			require.True(w.t, must(w.client.TryAcquireAll(w.ctx, 0, Demand{Limiter: w.l, Permits: 10}))(w.t).Granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, interval), func(t *testing.T, w *world) {
				w.put(5*time.Second, javaGrant(10))
				w.setValue(0)
				other := w.otherProcess()
				require.False(t, must(other.RateLimiter(w.l.Name()).TryAcquire(w.ctx, 1, 0))(t))
				require.Equal(t, 1, w.marked())
				w.at(time.Second)
				w.rejected(1, interval-time.Second) // this process checks at 1 and 21 s
				takes(w)
				require.Equal(t, interval, w.elapsed())
			})
		})
	}
}

// TestACoolDownKeepsWhenAMarkIsSpent checks that a cool-down that is lifted gives the permits of a peer with a fast clock
// back an interval after they were first seen.
func TestACoolDownKeepsWhenAMarkIsSpent(t *testing.T) {
	for name, at := range map[string]time.Duration{"score ahead": 2 * time.Second, "score passed": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, 20*time.Second), func(t *testing.T, w *world) {
				w.put(5*time.Second, javaGrant(10))
				w.setValue(0)
				w.rejected(10, 20*time.Second)
				w.at(at)
				require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)))
				w.at(12 * time.Second)
				must(w.l.Admin().LiftCoolDown(w.ctx))(t)
				w.rejected(10, 8*time.Second)
				w.at(20 * time.Second)
				w.granted(10)
			})
		})
	}
}

// healed heals a limiter for the given cause.
func healed(ctx context.Context, l *RateLimiter, typ permit.Type, c permit.HealCause) error {
	_, err := link.Do(ctx, &l.handle.Link, l.redis.Heal(typ, c))
	return err
}
