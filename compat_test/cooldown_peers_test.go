// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// TestCoolDownAndTheOldest checks that 3.13.4 grants nothing during a cool-down and goes on after it. It returns an error while
// a score lies ahead of its clock, which is the case until an interval before the end.
func TestCoolDownAndTheOldest(t *testing.T) {
	t.Parallel()
	eachJar(t, func(s *scene) {
		s = s.another("0", 5, coolInterval)
		require.True(s, s.java(5))
		until := s.coolDown(2 * time.Second)
		for due := until.Add(-coolInterval); time.Now().Before(due); time.Sleep(50 * time.Millisecond) {
			require.Contains(s, s.redisson(twinOp{name: "tryAcquire", permits: 1}).word, "bad argument #2 to 'unpack' (string expected, got nil)")
			require.False(s, s.try(1).Granted)
		}
		s.closedUntil(until)
		require.True(s, s.java(1))
		require.True(s, s.try(4).Granted)
		s.wholeAgain(5, coolInterval)
	}, func(v version) bool { return v.name == "3.13.4" })
}

// TestCoolDownOfThreads checks that the threads of a JVM sleep until the end of a cool-down, or as long as they have time.
func TestCoolDownOfThreads(t *testing.T) {
	t.Parallel()
	versionsAbreast(t, func(t testing.TB, v version) {
		l := newTrouble(t, v, 4, time.Second)
		until := time.Now().Add(2 * time.Second)
		require.NoError(t, l.limiter.CoolDown(t.Context(), until))
		calls := []*pending{l.java.begin("acquire", l.name, 1), l.java.begin("tryAcquire", l.name, 1, callLimit)}
		granted := l.java.truth(t, "tryAcquire", l.name, 1, 300*time.Millisecond)
		require.False(t, granted && time.Now().Before(until))
		for ; time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			for _, call := range calls {
				require.False(t, !call.running() && time.Now().Before(until))
			}
		}
		for i, want := range []string{"null", "true"} {
			require.Equal(t, want, redistest.Must(calls[i].wait(callLimit))(t))
		}
	}, family, from("3.15.5"))
}

// TestFieldsAreHarmless checks that every version works on a limiter whose hash has the fields of a gap, of a cool-down, of a rate set
// with KeepState, of who waits and of a heal under way as it does on one without them. It is the blocks that keep Redisson from granting.
func TestFieldsAreHarmless(t *testing.T) {
	t.Parallel()
	until := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	fieldsOf := func(set string) map[string]string {
		counted := "1000 1000 21 " + memberOf(newestListed(), 1) + memberOf(newestListed(), 1)
		return map[string]string{"minGap": "20", "coolDown": until, "reopenUntil": until, "keptUntil": until, "waiting": "28d0 40 1790000000000 4000 pod-7;", set: counted}
	}
	take := func(permits int64) twinOp { return twinOp{name: "tryAcquire", permits: permits} }
	eachJar(t, func(s *scene) {
		for _, typ := range []string{"0", "1"} {
			with, without := s.another(typ, 9, time.Second), s.another(typ, 9, time.Second)
			fields, began := fieldsOf(with.keys()[2]), with.state().at
			require.NoError(s, s.rdb.HSet(s.Context(), with.name, fields).Err())
			for _, op := range []twinOp{
				take(2), take(7), take(1), {name: "availablePermits"}, take(10), {name: "trySetRate", typ: typ, rate: 4, interval: 1000},
				{name: "release", permits: 1}, {name: "setRate", typ: typ, rate: 7, interval: 1000}, take(7),
				{name: "setRateArgs", typ: typ, rate: 8, interval: 1000, keep: true}, {name: "availablePermits"},
				{name: "updateRate", typ: typ, rate: 6, interval: 1000}, take(5), {name: "availablePermits"},
				{name: "expire", ttl: 60_000}, take(1), {name: "clearExpire"}, {name: "delete"},
			} {
				if _, ok := s.jar.scripts[op.name]; !ok && op.name != "delete" {
					continue
				}
				require.Equal(s, without.redisson(op), with.redisson(op), "%v", op)
				a, b := with.state(), without.state()
				if op.name != "delete" {
					for field, value := range fields {
						require.Equal(s, value, a.hash[field], field)
					}
					maps.Copy(b.hash, fields)
				}
				require.Empty(s, a.differs(b, began), "%v", op)
				time.Sleep(300 * time.Millisecond)
			}
		}
	})
	t.Run("getConfig", func(t *testing.T) {
		eachVersion(t, func(t testing.TB, v version) {
			name, rdb := redistest.Key(t), redistest.Client(t)
			require.NoError(t, rdb.HSet(t.Context(), name, "rate", 9, "interval", 1000, "type", 0).Err())
			require.NoError(t, rdb.HSet(t.Context(), name, fieldsOf("{"+name+"}:permits")).Err())
			require.Equal(t, "OVERALL 9 1000", fleet.peer(t, v).must(t, "getConfig", name), "it reads all fields")
		}, family)
	})
}
