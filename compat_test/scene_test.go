// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A scene is a limiter that we and the scripts of one version of Redisson use as the same client, in virtual time and on a real
// Redis. A call of Redisson's is the script that its jar has sent, with the bubble's clock in place of the JVM's.
type scene struct {
	testing.TB
	rdb     *redis.Client
	jar     *jar
	id      string
	name    string
	typ     string
	client  *ratelimiter.Client
	limiter *ratelimiter.RateLimiter
	mixed   *atomic.Int64 // how often the client has reported that layouts are mixed
}

// eachJar plays a scene with a version of each family, or with every version, for which want, if any, holds.
func eachJar(t *testing.T, play func(s *scene), want ...func(version) bool) {
	t.Helper()
	for _, v := range allVersions {
		if slices.ContainsFunc(append(want, family), func(w func(version) bool) bool { return !w(v) }) {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			var j *jar
			onVersion(t, v, func(t testing.TB, v version) { j = newJar(t, v) })
			if j == nil {
				return // the newest, of which onVersion has reported why
			}
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				onVersion(t, v, func(t testing.TB, v version) { play(newScene(t, rdb, j)) })
			})
		})
	}
}

func newScene(t testing.TB, rdb *redis.Client, j *jar) *scene {
	t.Helper()
	s := &scene{TB: t, rdb: rdb, id: redistest.Key(t), name: redistest.Key(t)}
	return s.by(j)
}

// another returns a scene with a further limiter, whose rate Redisson has set.
func (s *scene) another(typ string, permits int64, interval time.Duration) *scene {
	s.Helper()
	o := *s
	o.name, o.typ = redistest.Key(s), typ
	o = *o.by(s.jar)
	require.Equal(s, "true", o.redisson(twinOp{name: "trySetRate", typ: typ, rate: permits, interval: interval.Milliseconds()}).word)
	return &o
}

// by returns the scene as another version of Redisson has it, and as we do with the options for that version.
func (s *scene) by(j *jar) *scene {
	s.Helper()
	require.NoError(s, j.load(s.Context(), s.rdb))
	o := *s
	o.jar = j
	o.mixed = new(atomic.Int64)
	o.client = newGoSide(s, s.rdb, j.version, s.id, ratelimiter.WithClientClock(), ratelimiter.WithHook(ratelimiter.Hook{Event: func(e ratelimiter.Event) {
		if e.Kind == ratelimiter.LayoutsMixed {
			o.mixed.Add(1)
		}
	}})).client
	o.limiter = o.client.RateLimiter(o.name)
	return &o
}

// redisson makes one call of Redisson's.
func (s *scene) redisson(op twinOp) twinAnswer {
	pipe := s.rdb.Pipeline()
	call := s.jar.send(s.Context(), pipe, op, s.name, s.id, time.Now().UnixMilli(), s.jar.random(rand.Uint64()))
	_, _ = pipe.Exec(s.Context()) // the command has the error
	return call.answer()
}

// java makes one tryAcquire of Redisson's and reports whether it was granted.
func (s *scene) java(permits int64) bool {
	s.Helper()
	a := s.redisson(twinOp{name: "tryAcquire", permits: permits})
	require.Contains(s, []string{granted, rejected}, a.word)
	return a.word == granted
}

// javaWaits calls as a thread of Redisson's does in acquire, which sleeps as long as it was told.
func (s *scene) javaWaits(permits int64) {
	for a := (twinAnswer{}); a.word != granted; time.Sleep(time.Duration(a.wait) * time.Millisecond) {
		if a = s.redisson(twinOp{name: "tryAcquire", permits: permits}); a.word != granted && a.word != rejected {
			s.Errorf("a caller of Redisson's: %v", a)
			return
		}
	}
}

// javaLeft returns what Redisson's availablePermits does, which writes.
func (s *scene) javaLeft() string { return s.redisson(twinOp{name: "availablePermits"}).word }

// try makes one call of ours.
func (s *scene) try(permits int64) ratelimiter.Result {
	s.Helper()
	return redistest.Must(s.limiter.Allow(s.Context(), permits))(s)
}

// waits starts callers of a kind and returns the instants at which they come back, once all have.
func waits(n int, call func()) func() []time.Time {
	var mu sync.Mutex
	var back []time.Time
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			call()
			mu.Lock()
			defer mu.Unlock()
			back = append(back, time.Now())
		})
	}
	return func() []time.Time { callers.Wait(); return back }
}

// keys returns those of the limiter: its hash, value, and set.
func (s *scene) keys() []string {
	keys := twinKeys(s.name, [2]string{s.id, s.id})
	if s.typ == "1" {
		return append(keys[:1:1], keys[3:5]...)
	}
	return keys[:3]
}

func (s *scene) value() int64 {
	s.Helper()
	return redistest.Must(s.rdb.Get(s.Context(), s.keys()[1]).Int64())(s)
}

func (s *scene) members() int64 { return s.rdb.ZCard(s.Context(), s.keys()[2]).Val() }

// state returns all that Redis holds of the limiter.
func (s *scene) state() twinState {
	s.Helper()
	return redistest.Must(parseState(twinLook.Eval(s.Context(), s.rdb, twinKeys(s.name, [2]string{s.id, s.id + "-"}))))(s)
}

// requireWhole checks that value and the permits in use add up to the rate.
func (s *scene) requireWhole() {
	s.Helper()
	rate := s.rdb.HGet(s.Context(), s.name, "rate").Val()
	require.Equal(s, rate, strconv.FormatInt(s.value()+used(s, s.rdb, s.keys()[2]), 10))
}

// wholeAgain checks that all permits come back to both sides, and that nothing is left of a cool-down.
func (s *scene) wholeAgain(rate int64, interval time.Duration) {
	s.Helper()
	s.requireWhole()
	time.Sleep(interval)
	require.True(s, s.try(rate).Granted)
	require.False(s, s.java(1))
	time.Sleep(interval)
	require.True(s, s.java(rate))
	require.False(s, s.try(1).Granted)
	require.False(s, s.rdb.HExists(s.Context(), s.name, "coolDown").Val())
	s.requireWhole()
}
