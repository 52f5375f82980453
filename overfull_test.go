package ratelimiter

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

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

// settled checks that value and the members add up to the rate.
func (w *world) settled(rate int64) {
	w.t.Helper()
	used, _ := w.used()
	require.Equal(w.t, rate, w.value()+used, "value %d and %d in use", w.value(), used)
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
	log, other := &windowLog{}, w.client.RateLimiter(w.l.Name()+"#other")
	for i := 0; other.handle.IsBeside(&w.l.handle); i++ { // one of 512, and then neither knows when a check is due
		other = w.client.RateLimiter(fmt.Sprint(w.l.Name(), "#other", i))
	}
	require.NoError(w.t, other.SetRate(w.ctx, overall(1_000_000, time.Millisecond)))
	for i := 0; w.elapsed() < begin+5*r.Interval; i++ {
		w.at(begin + time.Duration(i)*every)
		ok := false
		if lists {
			a, err := w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, permits}, Demand{other, 1})
			require.NoError(w.t, err)
			ok = a.Granted
		} else {
			ok = w.try(permits).Granted
		}
		if ok && w.elapsed() >= begin+r.Interval+2*every {
			log.add(w.elapsed(), permits)
		}
	}
	require.LessOrEqual(w.t, log.worst(r.Interval), r.Permits, "permits in a window")
	require.GreaterOrEqual(w.t, log.worst(r.Interval), r.Permits-permits, "and they are used")
	w.settled(r.Permits)
}

// TestOverFullAnyState checks that whatever value and the members are, a call that checks, and heal, leave exactly the
// rate, as an exact model does: after the rate was lowered, permits that are left go first, and otherwise the
// oldest members.
func TestOverFullAnyState(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		check(t, func(rt *rapid.T) {
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
			sick := value > rate || value+used != rate
			if value > rate {
				value = rate - used
			}
			over := value + used - rate
			if over < 0 || used == 0 {
				value, over = rate-used, 0
			}
			if lowered {
				less := max(0, min(over, value))
				value, over = value-less, over-less
				if sick && value < 0 {
					value, over = 0, over-value
				}
			}
			for i := range members {
				n := min(max(0, over), members[i])
				members[i], over, used = members[i]-n, over-n, used-n
			}
			n := rapid.Int64Range(1, rate).Draw(rt, "asked")
			b := permit.Batch{ID: redisson.RandomID(), Runs: []permit.Run{{Permits: n, Count: 1}}, Check: true}
			a := w.ask(b)
			if a.Next == permit.Heal {
				require.NoError(rt, w.l.redis.Heal(w.ctx, permit.Overall, causeOf(lowered)))
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

func causeOf(lowered bool) permit.HealCause {
	if lowered {
		return permit.Lowered
	}
	return permit.Checked
}

// A large set is counted in steps and then reduced in steps, oldest first. Several calls at once remove nothing
// twice.
func TestOverFullLargeSets(t *testing.T) {
	for _, lowered := range []bool{false, true} {
		t.Run(fmt.Sprint("lowered ", lowered), func(t *testing.T) {
			inWorld(t, overall(2000, time.Minute), func(t *testing.T, w *world) {
				for i := range 3 {
					w.at(time.Duration(i) * time.Second)
					w.fill(w.elapsed(), 1000)
				}
				w.setValue(500)
				done := make(chan error)
				for range 3 {
					go func() { done <- w.l.redis.Heal(w.ctx, permit.Overall, causeOf(lowered)) }()
				}
				for range 3 {
					require.NoError(t, <-done)
				}
				w.settled(2000)
				if lowered {
					require.Zero(t, w.value())
					w.rejected(1, 59*time.Second) // until those of the second thousand expire
				} else {
					require.EqualValues(t, 500-(1500-1024), w.value(), "the members of a page went")
					w.granted(24)
					w.rejected(1, 59*time.Second)
				}
			})
		})
	}
}

// TestChecksAreFew checks that a limiter in use makes one check an interval, and that one which is rarely
// asked, or is soon evicted, hardly ever makes any.
func TestChecksAreFew(t *testing.T) {
	redistest.Repeats(t)
	checks := func(w *world, f func()) (n int) {
		c := &checkCounter{}
		w.rdb.AddHook(c)
		f()
		return int(c.n.Load())
	}
	inWorld(t, overall(100, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		n := checks(w, func() {
			for range 1000 {
				time.Sleep(20 * time.Millisecond)
				w.granted(1)
			}
		})
		require.LessOrEqual(t, n, 20, "in 20 s")
		require.GreaterOrEqual(t, n, 18)
	})
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		const limiters, calls = 2000, 4000
		for i := range limiters {
			require.NoError(t, w.client.RateLimiter(fmt.Sprint(w.l.Name(), i)).SetRate(w.ctx, overall(100, time.Second)))
		}
		n := checks(w, func() {
			for i := range calls {
				_, err := w.client.RateLimiter(fmt.Sprint(w.l.Name(), i%limiters)).Allow(w.ctx, 1)
				require.NoError(t, err)
				time.Sleep(time.Millisecond)
			}
		})
		require.InDelta(t, calls/engine.CheckSample, n, 55, "one call in 64")
		for i := range limiters {
			_, err := w.client.RateLimiter(fmt.Sprint(w.l.Name(), i)).Delete(w.ctx)
			require.NoError(t, err)
		}
	})
}

// If many processes each ask less than once an interval, calls are checked at random.
func TestOverFullOfRareCallers(t *testing.T) {
	inWorld(t, overall(5, 10*time.Second), func(t *testing.T, w *world) {
		overFull{rate: 5, used: 10}.make(w, overall(5, 10*time.Second))
		var clients []*world
		for range 40 {
			peer := newWorld(t, redistest.Peer(t, w.rdb))
			peer.l = peer.client.RateLimiter(w.l.Name())
			defer peer.client.Close()
			clients = append(clients, peer)
		}
		log := &windowLog{}
		for i := range 1600 {
			time.Sleep(time.Second)
			if clients[i%40].try(1).Granted && i > 1200 {
				log.add(w.elapsed(), 1)
			}
		}
		require.LessOrEqual(t, log.worst(10*time.Second), int64(5))
	})
}

// A checkCounter counts the acquire calls that check.
type checkCounter struct {
	scriptHook
	n atomic.Int64
}

func (c *checkCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a := cmd.Args(); len(a) > 10 && a[0] == "evalsha" && a[2] == 3 {
			if words, ok := a[10].([]byte); ok && strings.Contains(string(words), "check") {
				c.n.Add(1)
			}
		}
		return next(ctx, cmd)
	}
}
