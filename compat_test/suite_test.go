// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// TestSuite runs the scenarios with this library alone, in virtual time, with the original's durations, to the
// millisecond.
func TestSuite(t *testing.T) {
	t.Parallel()
	require.Len(t, suiteScenarios, 31)
	var expiring sync.WaitGroup
	defer expiring.Wait()
	for _, c := range suiteScenarios {
		if c.ttl() {
			expiring.Go(func() {
				t.Run(c.name, func(t *testing.T) { newStage(t, redistest.Client(t), c.scale, nil, true).perform(c) })
			})
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				newStage(t, rdb, 0, nil, true).perform(c)
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
				s.perform(c)
			}
			if c.run != nil {
				once(t) // what it checks holds however the machine stalls
			} else {
				steadily(t, once, java.version)
			}
		})
	}
	var sleeping sync.WaitGroup
	slots, long := make(chan struct{}, suiteAtOnce), longForm()
	for _, c := range suiteScenarios {
		for _, way := range []string{javaFirst, goFirst, javaAlone} {
			if c.run == nil && (way != javaAlone || long) {
				slots <- struct{}{}
				sleeping.Go(func() {
					defer func() { <-slots }()
					play(c, way)
				})
			}
		}
	}
	sleeping.Wait()
	for _, c := range suiteScenarios {
		if c.run != nil {
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

// turn returns the side whose turn it is.
func (s *stage) turn() side {
	s.next++
	return s.sides[(s.next-1)%len(s.sides)]
}

func (s *stage) by(who side, operation string, args ...any) string {
	for i, arg := range args {
		if d, ok := arg.(time.Duration); ok {
			args[i] = s.real(d)
		}
	}
	return who.do(operation, s.name, args...)
}

func (s *stage) perform(c suiteScenario) {
	s.Helper()
	if c.run != nil {
		c.run(s)
	} else {
		s.play(c.steps)
	}
}

// keys returns the number of keys of the limiter.
func (s *stage) keys() int {
	s.Helper()
	keys := redistest.Must(s.rdb.Keys(s.Context(), "*"+s.name+"*").Result())(s)
	return len(keys)
}
