// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A suiteScenario is a scenario of Redisson's own limiter tests (RedissonRateLimiterTest of 4.7.0), under its name
// there and written anew. Each step is a call of the side whose turn it is.
type suiteScenario struct {
	name string // of the original
	// scale divides all durations in real time, so that a run is short. What has to happen within a window still has
	// half a second for it.
	scale int
	// ttl marks scenarios about keys that expire, which they never do in virtual time.
	ttl bool
	// busy marks scenarios with many threads. None of the others runs at the same time.
	busy bool
	run  func(s *stage)
}

// suiteScenarios returns the scenarios in the order of the original's file.
func suiteScenarios() []suiteScenario {
	return []suiteScenario{
		{name: "testKeepAliveTime", scale: 1, ttl: true, run: suiteKeepAliveTime},
		{name: "testExpire2", scale: 5, ttl: true, run: suiteExpire2},
		{name: "testRateValue", scale: 5, busy: true, run: suiteRateValue},
		{name: "testExpire", scale: 1, ttl: true, run: suiteExpire},
		{name: "testAcquisitionInterval", scale: 4, run: suiteAcquisitionInterval},
		{name: "testRateConfig", scale: 1, run: suiteRateConfig},
		{name: "testAvailablePermits", scale: 4, run: suiteAvailablePermits},
		{name: "testUpdateRateConfig", scale: 1, run: suiteUpdateRateConfig},
		{name: "testPermitsExceeding", scale: 1, run: suitePermitsExceeding},
		{name: "testZeroTimeout", scale: 1, run: suiteZeroTimeout},
		{name: "testTryAcquire", scale: 2, run: suiteTryAcquire},
		{name: "testAcquire", scale: 10, run: suiteAcquire},
		{name: "test", scale: 1, run: suiteWindows},
		{name: "testRemove", scale: 1, run: suiteRemove},
		{name: "testConcurrency2", scale: 5, busy: true, run: suiteConcurrency2},
		{name: "testConcurrency", scale: 5, busy: true, run: suiteConcurrency},
		{name: "testChangeRate", scale: 1, run: suiteChangeRate},
		{name: "testSetStateArgs", scale: 1, run: suiteSetStateArgs},
		{name: "testSetStateArgsKeepState", scale: 1, run: suiteSetStateArgsKeepState},
		{name: "testSetStateArgsNotKeepState", scale: 1, run: suiteSetStateArgsNotKeepState},
		{name: "testUpdateRateNonExisting", scale: 1, run: suiteUpdateRateNonExisting},
		{name: "testUpdateRateKeepsState", scale: 1, run: suiteUpdateRateKeepsState},
		{name: "testUpdateRateHigherRate", scale: 1, run: suiteUpdateRateHigherRate},
		{name: "testUpdateRateLowerRateNewValuePositive", scale: 1, run: suiteUpdateRateLowerRatePositive},
		{name: "testUpdateRateLowerRateNewValueNegative", scale: 1, run: suiteUpdateRateLowerRateNegative},
		{name: "testUpdateRatePermitResetFull", scale: 1, run: suiteUpdateRatePermitResetFull},
		{name: "testUpdateRateModeChangeClearsState", scale: 1, run: suiteUpdateRateModeChange},
		{name: "testUpdateRateKeepAliveTimeLessThanIntervalThrows", scale: 1, run: suiteUpdateRateKeepAliveTooShort},
		{name: "testUpdateRateRateIntervalChangeDropsExpired", scale: 1, run: suiteUpdateRateIntervalChange},
		{name: "testUpdateRatePerClientUsesClientState", scale: 1, run: suiteUpdateRatePerClient},
		{name: "testRelease", scale: 1, run: suiteRelease},
	}
}

// TestSuite runs the scenarios with this library alone, in virtual time, with the original's durations, to the
// millisecond.
func TestSuite(t *testing.T) {
	require.Len(t, suiteScenarios(), 31)
	var expiring sync.WaitGroup
	defer expiring.Wait()
	for _, c := range suiteScenarios() {
		if c.ttl {
			expiring.Go(func() {
				t.Run(c.name, func(t *testing.T) { c.run(newStage(t, redistest.Client(t), c.scale, nil, true)) })
			})
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				c.run(newStage(t, rdb, 0, nil, true))
			})
		})
	}
}

// The ways to play a scenario in real time, on one limiter and as one client.
const (
	javaFirst = "Java first" // Java and we take turns
	goFirst   = "Go first"
	javaAlone = "Java alone" // Redisson has to pass its own suite; with RATELIMITER_COMPAT_LONG
)

// suiteAtOnce is the number of scenarios that run at once. They sleep most of the time, but with too many of them,
// steps that belong to one window would come after its end.
const suiteAtOnce = 24

// TestSuiteTogether runs the scenarios in real time and with Java. The busy ones come after the others.
func TestSuiteTogether(t *testing.T) {
	java := fleet.peer(t, newestListed())
	play := func(c suiteScenario, way string) {
		t.Run(c.name+"/"+way, func(t *testing.T) {
			once := func(t testing.TB) {
				s := newStage(t, redistest.Client(t), c.scale, java, way != javaAlone)
				if way == goFirst {
					s.next++
				}
				c.run(s)
			}
			if c.busy {
				once(t) // what it checks holds however the machine stalls
			} else {
				steadily(t, once, java.version)
			}
		})
	}
	var sleeping sync.WaitGroup
	slots, long := make(chan struct{}, suiteAtOnce), os.Getenv("RATELIMITER_COMPAT_LONG") != ""
	for _, c := range suiteScenarios() {
		for _, way := range []string{javaFirst, goFirst, javaAlone} {
			if !c.busy && (way != javaAlone || long) {
				slots <- struct{}{}
				sleeping.Go(func() {
					defer func() { <-slots }()
					play(c, way)
				})
			}
		}
	}
	sleeping.Wait()
	for _, c := range suiteScenarios() {
		if c.busy {
			play(c, javaFirst) // here the sides do not take turns: half of the threads are Java's
			if long {
				play(c, javaAlone)
			}
		}
	}
}

// A stage is a limiter with the sides that take turns in calling it.
type stage struct {
	testing.TB
	rdb     *redis.Client
	name    string
	sides   []side
	next    int
	scale   int // 0 in virtual time
	java    *peer
	limiter *ratelimiter.RateLimiter
}

func newStage(t testing.TB, rdb *redis.Client, scale int, java *peer, goes bool) *stage {
	s := &stage{TB: t, rdb: rdb, name: redistest.Key(t), scale: scale, java: java}
	options := []ratelimiter.Option{ratelimiter.WithClientKeyTTL(0)}
	if java != nil {
		options = append(options, ratelimiter.WithClientID(java.id))
		s.sides = append(s.sides, javaSide{java})
	}
	if scale == 0 {
		options = append(options, ratelimiter.WithClientClock())
	}
	if goes {
		client := clienttest.New(t, rdb, options...)
		t.Cleanup(func() { _ = client.Close() })
		s.limiter = client.RateLimiter(s.name)
		s.sides = append(s.sides, goSide{client})
	}
	return s
}

// real scales a duration of the original for this stage.
func (s *stage) real(d time.Duration) time.Duration { return d / time.Duration(max(1, s.scale)) }

func (s *stage) sleep(d time.Duration) { time.Sleep(s.real(d)) }

// do calls the operation on the side whose turn it is.
func (s *stage) do(operation string, args ...any) string {
	who := s.sides[s.next%len(s.sides)]
	s.next++
	return s.by(who, operation, args...)
}

func (s *stage) by(who side, operation string, args ...any) string {
	for i, arg := range args {
		if d, ok := arg.(time.Duration); ok {
			args[i] = s.real(d)
		}
	}
	return who.do(operation, s.name, args...)
}

// want calls the operation on the side whose turn it is, and compares the reply.
func (s *stage) want(answer any, operation string, args ...any) {
	s.Helper()
	who := s.sides[s.next%len(s.sides)]
	text := "null"
	switch a := answer.(type) {
	case bool:
		text = strconv.FormatBool(a)
	case int:
		text = strconv.Itoa(a)
	case string:
		text = a
	}
	require.Equal(s, text, s.do(operation, args...), "%T: %s %v", who, operation, args)
}

// done calls an operation that returns nothing.
func (s *stage) done(operation string, args ...any) {
	s.Helper()
	s.want(nil, operation, args...)
}

// keys returns the number of keys of the limiter.
func (s *stage) keys() int {
	s.Helper()
	keys := redistest.Must(s.rdb.Keys(s.Context(), "*"+s.name+"*").Result())(s)
	return len(keys)
}
