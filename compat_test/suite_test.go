// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// suiteWays are the ways to play a scenario of Redisson's suite, by the sides that take turns in calling the limiter.
var suiteWays = map[string]func(s *scene) []side{
	"ours":           func(s *scene) []side { return []side{goSide{s.client}} },
	"Redisson":       func(s *scene) []side { return []side{scriptSide{s}} }, // it has to pass its own suite
	"Redisson first": func(s *scene) []side { return []side{scriptSide{s}, goSide{s.client}} },
	"ours first":     func(s *scene) []side { return []side{goSide{s.client}, scriptSide{s}} },
}

// TestSuite runs the scenarios in virtual time, with the original's durations and to the millisecond.
func TestSuite(t *testing.T) {
	t.Parallel()
	require.Len(t, suiteScenarios, 31)
	j := newJar(t, newestListed())
	for _, c := range suiteScenarios {
		for way, sides := range suiteWays {
			if c.run != nil && way != "ours" {
				continue // TestSoak has threads of both sides
			}
			t.Run(c.name+"/"+way, func(t *testing.T) {
				t.Parallel()
				perform := func(t *testing.T, rdb *redis.Client) {
					s := &stage{scene: newScene(t, rdb, j)}
					s.sides = sides(s.scene)
					if c.run != nil {
						c.run(s)
					} else {
						s.play(c.steps)
					}
				}
				if c.ttl() {
					perform(t, redistest.Client(t))
				} else {
					redistest.Run(t, perform)
				}
			})
		}
	}
}

// A stage is a scene with the sides that take turns.
type stage struct {
	*scene
	sides []side
	next  int
}

// turn returns the side whose turn it is.
func (s *stage) turn() side {
	s.next++
	return s.sides[(s.next-1)%len(s.sides)]
}

// A scriptSide is Redisson's client as its scripts and its waits make it, in the words of the peer.
type scriptSide struct{ *scene }

func (r scriptSide) do(operation, _ string, args ...any) string {
	op := twinOp{name: operation}
	number := func(i int) int64 {
		switch arg := args[i].(type) {
		case int:
			return int64(arg)
		case time.Duration:
			return arg.Milliseconds()
		}
		return 0
	}
	switch operation {
	case "acquire", "tryAcquire":
		return r.acquire(twinOp{name: "tryAcquire", permits: number(0)}, operation, args[1:])
	case "trySetRate", "setRate", "setRateArgs", "updateRate":
		op.typ, op.rate, op.interval = strconv.Itoa(map[any]int{perClient: 1}[args[0]]), number(1), number(2)
		if len(args) > 3 {
			op.keepAlive = number(3)
		}
		op.keep = len(args) > 4 && args[4] == true
	case "release":
		op.permits = number(0)
	case "expire":
		op.ttl = number(0)
	case "getConfig":
		h := r.rdb.HGetAll(r.Context(), r.name).Val()
		return fmt.Sprintf("%s %s %s", map[string]string{"0": overall, "1": perClient}[h["type"]], h["rate"], h["interval"])
	case "isExists":
		return strconv.FormatBool(r.rdb.Exists(r.Context(), r.name).Val() == 1)
	case "remainTimeToLive":
		return strconv.FormatInt(r.rdb.PTTL(r.Context(), r.name).Val().Milliseconds(), 10)
	}
	return r.redisson(op).word
}

// acquire calls again as Redisson's threads do, which sleep as long as they were told.
func (r scriptSide) acquire(op twinOp, operation string, timeout []any) string {
	begin := time.Now()
	for {
		a := r.redisson(op)
		wait, left := time.Duration(a.wait)*time.Millisecond, time.Duration(0)
		if len(timeout) > 0 {
			left = timeout[0].(time.Duration) - time.Since(begin)
		}
		switch {
		case a.word == granted && operation == "acquire":
			return "null"
		case a.word == granted:
			return "true"
		case a.word != rejected:
			return a.word
		case operation == "tryAcquire" && left < wait:
			time.Sleep(left)
			return "false"
		}
		time.Sleep(wait)
	}
}
