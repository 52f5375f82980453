// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// forms is a script that counts its calls of a key, and replies in each form that a reply of a script has.
var forms = dispatch.New("forms", `local n = redis.call('INCR', KEYS[1])
local form = ARGV[1]
if form == 'number' then
  return n
elseif form == 'text' then
  return 'text ' .. n
elseif form == 'status' then
  return redis.status_reply('status')
elseif form == 'nothing' then
  return false
elseif form == 'error' then
  return redis.error_reply('WRONG form')
elseif form == 'empty' then
  return {}
end
return {n, 'text', {n, 'list'}, ''}`, 1, 1)

// integers is like it, of one form: the list of integers that its caller has said it is.
var integers = func() *dispatch.Script {
	s := dispatch.New("integers", `return {redis.call('INCR', KEYS[1]), #ARGV[1], 0, 2^40, -1}`, 1, 1)
	s.Integers = true
	return s
}()

// order is the order of the forms in what leaves together.
var order = []string{"list", "text", "number", "empty", "nothing", "status", "error"}

// replies is what the first call of a key replies to, by the form.
var replies = map[string]any{
	"number":  int64(1),
	"text":    "text 1",
	"status":  "status",
	"nothing": redis.Nil,
	"error":   "WRONG form",
	"empty":   []any{},
	"list":    []any{int64(1), "text", []any{int64(1), "list"}, ""},

	"integers": []any{int64(1), int64(8), int64(0), int64(1 << 40), int64(-1)},
}

// An outcome is what a caller is told of its call, which is of the given form.
type outcome struct {
	form  string
	reply any
	err   error
}

// replied returns the reply of Redis in the form of replies. It reports false if the caller was not told of one.
func (o outcome) replied() (any, bool) {
	var of redis.Error
	switch {
	case o.err == nil:
		return dispatch.List(o.reply), true
	case errors.Is(o.err, redis.Nil):
		return redis.Nil, true
	case errors.As(o.err, &of):
		return of.Error(), true
	}
	return nil, false
}

// burst makes calls of s, of keys with that prefix, at once. It makes fewCalls of them first, behind which the others wait, and returns
// the outcome of each by its key.
func burst(d *dispatch.Dispatcher, s *dispatch.Script, prefix string, calls int) map[string]outcome {
	var wg sync.WaitGroup
	var mu sync.Mutex
	all := map[string]outcome{}
	for i := range calls {
		o, key := outcome{form: order[i%len(order)]}, fmt.Sprint(prefix, ":", i)
		if s == integers {
			o.form = "integers"
		}
		wg.Go(func() {
			cmd, _ := s.Command([]string{key}, o.form)
			o.reply, o.err = s.Once(context.Background(), d, cmd)
			mu.Lock()
			defer mu.Unlock()
			all[key] = o
		})
		synctest.Wait()
	}
	wg.Wait()
	return all
}

// forget deletes the keys of a burst, which miniredis sorts at each command.
func forget(t *testing.T, rdb *redis.Client, all map[string]outcome) {
	require.NoError(t, rdb.Del(t.Context(), slices.Collect(maps.Keys(all))...).Err())
}

// callsOf returns how many calls each script command makes that leaves in one piece, and whether a HELLO leaves with them.
func callsOf(requests [][]string) (calls []int, hello bool) {
	for _, words := range requests {
		switch {
		case words[0] == "hello":
			hello = true
		case strings.HasPrefix(words[0], "eval"):
			n, _ := strconv.Atoi(words[2])
			calls = append(calls, n)
		}
	}
	return calls, hello
}

// A connection is a kind of client, and what it speaks.
type connection struct {
	client   string
	protocol int
	push     bool
}

// connections are those that are cut. A ring and a cluster ask their servers by clients of the first kind.
var connections = []connection{{"", 2, false}, {"", 3, false}, {"", 3, true}, {"ring", 3, false}, {"cluster", 3, false}}

// of returns a client that uses the server of rdb: itself, as the only shard of a ring, or as the only node of a cluster.
func (c connection) of(t *testing.T, rdb *redis.Client, opt func(*redis.Options)) redis.UniversalClient {
	single := redistest.Peer(t, rdb, opt)
	o := single.Options()
	var u redis.UniversalClient
	switch c.client {
	case "ring":
		u = redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": o.Addr}, Dialer: o.Dialer, Protocol: o.Protocol, PoolSize: o.PoolSize, DisableIdentity: true,
			HeartbeatFrequency: time.Hour, MaxRetries: -1})
	case "cluster":
		u = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}, Dialer: o.Dialer, Protocol: o.Protocol, PoolSize: o.PoolSize, DisableIdentity: true,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: o.Addr}}}}, nil
			}})
	default:
		return single
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}

// TestReplyThatEndsEarly breaks the connection at each byte of the replies to calls that travel by themselves, in a pipeline, in a
// joint, and with the question whether there may be joints. A call is made once. Its caller gets the whole reply, or an error of the
// connection, after which the call may have been executed. Calls may travel in joints before and after.
func TestReplyThatEndsEarly(t *testing.T) {
	redistest.NeedReal(t) // it takes minutes in Lua on Go
	redistest.Repeats(t)
	alone := func(requests [][]string) bool {
		calls, _ := callsOf(requests)
		return len(calls) == 1
	}
	joint := func(requests [][]string) bool {
		calls, _ := callsOf(requests)
		return len(calls) > 0 && slices.Max(calls) > 1
	}
	const few = 8 // calls behind which others wait
	for name, c := range map[string]struct {
		script   *dispatch.Script
		calls    int
		separate bool // there are no joints
		anew     bool // each client is new
		match    func(requests [][]string) bool
	}{
		"alone":           {script: forms, calls: 1, match: alone},
		"alone, integers": {script: integers, calls: 1, match: alone},
		"in a pipeline": {script: forms, calls: few + len(order), separate: true, match: func(requests [][]string) bool {
			calls, _ := callsOf(requests)
			return len(calls) > 1
		}},
		"in a joint":           {script: forms, calls: few + len(order), match: joint},
		"in a joint, integers": {script: integers, calls: few + 2, match: joint},
		"with HELLO": {script: forms, calls: few + 2, anew: true, match: func(requests [][]string) bool {
			calls, hello := callsOf(requests)
			return hello && len(calls) > 1
		}},
	} {
		for _, over := range connections {
			if over.client != "" && c.calls > 1 {
				continue // such a case does not end: perhaps since these clients hold a mutex while they ask for COMMAND, and no virtual time passes for who waits for it
			}
			t.Run(fmt.Sprintf("%s, %s, RESP%d, push messages %v", name, over.client, over.protocol, over.push), func(t *testing.T) {
				redistest.Run(t, func(t *testing.T, direct *redis.Client) {
					cutter := &redistest.Cutter{Delay: time.Millisecond, Push: over.push}
					client := func() (redis.UniversalClient, *dispatch.Dispatcher) {
						rdb := over.of(t, direct, func(o *redis.Options) { o.Protocol = over.protocol; cutter.Option(o) })
						d := dispatch.Of(rdb)
						if c.separate {
							dispatch.Separate(d)
						}
						return rdb, d
					}
					prefix, told := redistest.Key(t), map[string]int{}
					rdb, d := client()
					for at := 0; ; at++ {
						keys := fmt.Sprint(prefix, ":", at, ":")
						if at == 0 && !c.anew {
							forget(t, direct, burst(d, c.script, keys, c.calls))
						}
						cutter.CutAt(at, c.match)
						all := burst(d, c.script, keys, c.calls)
						for key, o := range all {
							made, err := direct.Get(t.Context(), key).Int()
							if !errors.Is(err, redis.Nil) {
								require.NoError(t, err)
							}
							reply, ok := o.replied()
							if !ok {
								told["nothing of the reply"]++
								require.LessOrEqual(t, made, 1, "at byte %d: %v", at, o)
								require.Equal(t, retry.Unknown, dispatch.Classify(o.err), "at byte %d: %v", at, o)
								continue
							}
							told[o.form]++
							require.Equal(t, 1, made, "at byte %d: %v", at, o)
							require.Equal(t, replies[o.form], reply, "at byte %d", at)
						}
						forget(t, direct, all)
						cut, matched := cutter.Cut()
						require.True(t, matched, "at byte %d: no such calls left", at)
						if c.anew {
							cutter.CutAt(math.MaxInt, joint)
							forget(t, direct, burst(d, c.script, keys, few+2)) // asks again
							forget(t, direct, burst(d, c.script, keys, few+2))
							_, matched = cutter.Cut()
							require.True(t, matched, "at byte %d: calls do not travel together any more", at)
							require.NoError(t, rdb.Close())
							rdb, d = client()
						}
						if !cut {
							t.Logf("%d bytes; told: %v", at, told)
							require.Greater(t, told["nothing of the reply"], 10)
							break
						}
					}
				})
			})
		}
	}
}
