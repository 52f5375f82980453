// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestFlightTime checks that the time of a flight is what Redis worked for it, and not the time in which the machine
// did not let it.
func TestFlightTime(t *testing.T) {
	b := testBench(t)
	rdb := newClient(b.server.Addr(), 1)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	clock := new(flightClock)
	rdb.AddHook(clock)
	send := func(script string) error {
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Eval(t.Context(), script, nil)
			p.Eval(t.Context(), "return 1", nil)
			return nil
		})
		return err
	}
	_, err := clock.sample()
	require.ErrorContains(t, err, "no flight")
	done := make(chan error)
	go func() { done <- send("for i = 1, 1e7 do end return 1") }()
	time.Sleep(20 * time.Millisecond)
	b.server.Pause()
	const pause = 2 * time.Second
	time.Sleep(pause)
	b.server.Resume()
	require.NoError(t, <-done)
	for range flightsTimed - 1 {
		require.NoError(t, send("return 1"))
	}
	require.EqualValues(t, 1, clock.flights, "the time of one in four is taken")
	s := redistest.Must(clock.sample())(t)
	require.Greater(t, s[flightMetric], 10.0, "ms of work")
	require.Less(t, s[flightMetric], float64(pause.Milliseconds()))
	require.Equal(t, 2.0, s[flightCallsMetric])

	clock.add(2, redis.NewStringResult("used_cpu_user:1", nil), redis.NewStringResult("", errors.New("gone")))
	_, err = clock.sample()
	require.ErrorContains(t, err, "gone")
}

// TestTransportRowBites checks that a rule which is for the request ends the row, since it would measure the limiter.
func TestTransportRowBites(t *testing.T) {
	b := testBench(t)
	r := transportRow{rules: 1, duration: time.Millisecond}
	client := b.with(t, oursKey).(*ours).client
	rule := r.rule("any", httplimit.Match{Hosts: []string{"api.example.com"}})
	rule.Limits[0].Rate.Permits = 1e6
	_, _, err := r.pass(t.Context(), b, client, []httplimit.Rule{rule})
	require.ErrorContains(t, err, "script calls")
}

// TestLimitWaitersBite checks that waiters who returned without their permits end the run.
func TestLimitWaitersBite(t *testing.T) {
	b := testBench(t)
	for key := range waitedOn {
		c := *b.with(t, key).(*sharedLimit)
		_, err := b.cell(t.Context(), limitWaitersRow{5}, &c)
		require.NoError(t, err, key)
		honest := c.algorithm
		c.algorithm = func(j job) limit.Algorithm { // permits cost half
			j.permits *= 2
			return honest(j)
		}
		_, err = b.cell(t.Context(), limitWaitersRow{5}, &c)
		require.ErrorContains(t, err, "5 waiters returned, and the limiter holds 50ms of permits, not 100ms", key)
	}
}

// TestUsageOfTwo checks that the commands of two nodes are added up.
func TestUsageOfTwo(t *testing.T) {
	one := usage{cpu: 1, scriptCalls: 2, scriptTime: 3, pings: 4, commands: map[string]commandCount{"get": {1, 2}}}
	sum := usage{}.plus(one).plus(usage{cpu: 10, scriptCalls: 20, scriptTime: 30, pings: 40, commands: map[string]commandCount{"get": {3, 4}, "set": {5, 6}}})
	require.Equal(t, usage{cpu: 11, scriptCalls: 22, scriptTime: 33, pings: 44, commands: map[string]commandCount{"get": {4, 6}, "set": {5, 6}}}, sum)
	require.Equal(t, map[string]commandCount{"get": {1, 2}}, one.commands, "it is not changed")
}
