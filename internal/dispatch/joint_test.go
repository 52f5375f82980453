// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// oneServer is the reply of a single server to a HELLO.
var oneServer = map[any]any{"server": "redis", "id": int64(7), "mode": "standalone"}

// joining lets the calls of a hangar travel together: judge, if it is not nil, sets the reply or error of a command, or
// the error of a call in a joint.
func joining(h *hangar, judge func(name string, cmd redis.Cmder) error) {
	h.hello = oneServer
	h.judge = func(cmd redis.Cmder) bool {
		args := cmd.Args()
		once, n := cmd.(OnceCmd), args[2].(int)
		if n == 1 && args[1] != echo.joints.all().sha {
			err := judge(fmt.Sprint(args[4]), cmd)
			cmd.SetErr(err)
			return err != nil
		}
		if err := judge("", cmd); err != nil {
			cmd.SetErr(err)
			return true
		}
		list := []any{h.began.UnixMicro()}
		for _, arg := range args[3+n:] {
			if err := judge(fmt.Sprint(arg), cmd); err != nil {
				list = append(list, int64(-2), err.Error())
			} else {
				list = append(list, int64(-1), arg)
			}
		}
		once.SetVal(list)
		return true
	}
	h.fill()
	h.leave(2) // learns from HELLO
	h.wg.Wait()
	h.pipelines, h.began = nil, time.Now()
}

// TestCallsTravelTogether checks that calls of one script leave in one command, and that each gets its own reply or error.
func TestCallsTravelTogether(t *testing.T) {
	wrong := redisError("WRONGTYPE Operation against a key holding the wrong kind of value")
	other := New("other", "return ARGV[1]", 1, 1)
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		joining(h, func(name string, _ redis.Cmder) error {
			if name == "b" {
				return wrong
			}
			return nil
		})
		h.fill()
		h.succeed("a")
		h.wg.Go(func() {
			cmd, _ := other.Command([]string{"k"}, "other")
			_, err := other.Once(context.Background(), h.d, cmd)
			require.NoError(t, err)
		})
		h.begin(context.Background(), "b", func(_ any, err error) { require.Equal(t, scriptError(wrong), err) })
		h.succeed("c")
		h.wg.Wait()
		require.Len(t, h.pipelines, 1)
		require.Regexp(t, "^500µs 2: ", h.pipelines[0], "one of three calls, and one of one")
	})
}

// TestJointThatIsRejected checks that calls are sent singly, in the same attempt, if Redis rejects them together, and for
// a minute from then on.
func TestJointThatIsRejected(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		joining(h, func(name string, cmd redis.Cmder) error {
			if name == "" {
				return redisError("NOPERM No permissions to access a key")
			}
			return nil
		})
		leave := func() []string {
			h.pipelines, h.began = nil, time.Now()
			h.fill()
			h.leave(5)
			h.wg.Wait()
			return h.sizes()
		}
		require.Equal(t, []string{"500µs 1", "1ms 5"}, leave())
		require.Equal(t, []string{"500µs 5"}, leave())
		time.Sleep(rejoin)
		require.Equal(t, []string{"500µs 1", "1ms 5"}, leave())
	})
}

// TestJointOfAnotherLua checks that a server which does not run a joint is never sent another.
func TestJointOfAnotherLua(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		joining(h, func(string, redis.Cmder) error { return nil })
		judge := h.judge
		h.judge = func(cmd redis.Cmder) bool {
			if cmd.Args()[2].(int) > 1 {
				cmd.(OnceCmd).SetVal(int64(0))
				return true
			}
			return judge(cmd)
		}
		for _, want := range [][]string{{"500µs 1", "1ms 5"}, {"500µs 5"}} {
			h.pipelines, h.began = nil, time.Now()
			h.fill()
			h.leave(5)
			h.wg.Wait()
			require.Equal(t, want, h.sizes())
			time.Sleep(2 * rejoin)
		}
	})
}

// TestFateOfAJoint checks that an error of a joint that says nothing of its calls is that of each.
func TestFateOfAJoint(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		outcome retry.Outcome
		shared  bool
	}{
		"loading":     {redisError("LOADING Redis is loading the dataset in memory"), retry.NotExecuted, false},
		"busy":        {redisError("BUSY Redis is busy running a script."), retry.NotExecuted, false},
		"read only":   {redisError("READONLY You can't write against a read only replica."), retry.NotExecuted, false},
		"memory":      {redisError("OOM command not allowed when used memory > 'maxmemory'."), retry.NotExecuted, false},
		"connection":  {io.EOF, retry.Unknown, true},
		"wrong reply": {nil, retry.Unknown, false},
	} {
		inHangar(t, 500*time.Microsecond, func(h *hangar) {
			joining(h, func(name string, _ redis.Cmder) error {
				if name == "" {
					return c.err
				}
				return nil
			})
			if c.err == nil {
				h.judge = func(cmd redis.Cmder) bool {
					cmd.(OnceCmd).SetVal([]any{int64(1), int64(9)})
					return cmd.Args()[2].(int) > 1
				}
			}
			h.fill()
			for range 5 {
				h.begin(context.Background(), "x", func(_ any, err error) {
					require.Error(t, err, name)
					failure := Failure(err)
					require.Equal(t, c.outcome, failure.Outcome, name)
					require.Equal(t, c.shared, failure.Shared, name)
				})
			}
			h.wg.Wait()
			require.Equal(t, []string{"500µs 1"}, h.sizes(), name)
		})
	}
}

// TestJointThatMeetsAReplica checks that calls in a joint that met READONLY are sent by themselves, in the same attempt, for
// go-redis to read that and close the connection, and that the others keep their replies.
func TestJointThatMeetsAReplica(t *testing.T) {
	readOnly := redisError("READONLY You can't write against a read only replica.")
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		joining(h, func(name string, _ redis.Cmder) error {
			if name == "a" {
				return readOnly
			}
			return nil
		})
		h.fill()
		h.begin(context.Background(), "a", func(_ any, err error) { require.Equal(t, readOnly, err) })
		h.succeed("b")
		h.wg.Wait()
		require.Equal(t, []string{"500µs 1: b", "1ms 1: a"}, h.pipelines)
	})
}

// TestJointThatFindsNothing checks that a call which finds nothing among others is made again by itself, and that calls travel
// singly for a while if it finds something then: the others were run by a server that does not have it.
func TestJointThatFindsNothing(t *testing.T) {
	look := New("look", "return {tonumber(ARGV[1])}", 1, 1)
	look.Missing = func(reply []any) bool { return reply[0] == int64(1) }
	for alone, together := range map[int64]bool{1: true, 0: false} {
		inHangar(t, 500*time.Microsecond, func(h *hangar) {
			joining(h, func(string, redis.Cmder) error { return nil })
			h.judge = func(cmd redis.Cmder) bool {
				switch cmd.Args()[1] {
				case look.sha:
					cmd.(OnceCmd).SetVal([]any{alone})
				case look.joints.all().sha:
					cmd.(OnceCmd).SetVal([]any{h.began.UnixMicro(), int64(1), int64(1), int64(1), int64(0)})
				default:
					return false
				}
				return true
			}
			h.fill()
			for _, want := range []int64{alone, 0} {
				h.wg.Go(func() {
					cmd, _ := look.Command([]string{"k"}, "a")
					reply, err := look.Once(context.Background(), h.d, cmd)
					require.NoError(t, err)
					require.Equal(t, []any{want}, reply)
				})
				synctest.Wait()
			}
			h.wg.Wait()
			require.Equal(t, []string{"500µs 1", "1ms 1"}, h.sizes())
			require.Equal(t, together, h.d.single.joins.allowed())
		})
	}
}

// TestJointsThatKeepRedisForLong checks that the next joints have fewer calls after some that have taken Redis too long, and
// that they grow again.
func TestJointsThatKeepRedisForLong(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		joining(h, func(string, redis.Cmder) error { return nil })
		for _, c := range []struct {
			took time.Duration
			most int
		}{{tooLong, leastCalls}, {tooLong - time.Microsecond, leastCalls}, {10 * time.Microsecond, maxCalls}} {
			h.took, h.began = c.took, time.Now()
			h.fill()
			h.leave(600)
			h.wg.Wait()
			require.Equal(t, c.most, h.d.single.most, c.took)
		}
	})
}

// TestJointThatRedisLacks checks that after a NOSCRIPT an EVAL carries the text of a joint, for all of its calls.
func TestJointThatRedisLacks(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		known := true
		joining(h, func(name string, cmd redis.Cmder) error {
			if name == "" && !known && cmd.Name() == "evalsha" {
				return redisError("NOSCRIPT No matching script. Please use EVAL.")
			}
			if name == "" && cmd.Name() == "eval" {
				require.Equal(t, echo.joints.all().src, cmd.Args()[1])
			}
			return nil
		})
		known = false
		h.fill()
		for _, name := range []string{"a", "b", "c"} {
			h.succeed(name)
		}
		h.wg.Wait()
		require.Equal(t, []string{"500µs 1: c", "1ms 1: eval c"}, h.pipelines)
	})
}

// TestWhoMayJoin checks by what a server says of itself that calls travel together only if it is the only one.
func TestWhoMayJoin(t *testing.T) {
	for _, c := range []struct {
		hello any
		want  int // commands in a pipeline of five calls
	}{
		{oneServer, 1},
		{[]any{"server", "redis", "id", int64(7), "mode", "standalone"}, 1},
		{map[any]any{"server": "redis", "id": int64(7), "mode": "cluster"}, 5},
		{map[any]any{"server": "redis", "id": int64(0), "mode": "standalone"}, 5},
		{"hello", 5},
		{redisError("ERR unknown command 'HELLO'"), 5},
		{redis.Nil, 5},
	} {
		inHangar(t, 500*time.Microsecond, func(h *hangar) {
			joining(h, func(string, redis.Cmder) error { return nil })
			h.d.single.joins.state.Store(joinsUnknown)
			h.hello = c.hello
			for _, want := range []int{5, c.want} {
				h.pipelines, h.began = nil, time.Now()
				h.fill()
				h.leave(5)
				h.wg.Wait()
				require.Equal(t, []string{fmt.Sprint("500µs ", want)}, h.sizes(), "%v", c.hello)
			}
			Separate(h.d)
			h.pipelines, h.began = nil, time.Now()
			h.fill()
			h.leave(5)
			h.wg.Wait()
			require.Equal(t, []string{"500µs 5"}, h.sizes(), "%v", c.hello)
		})
	}
	// A connection that breaks says nothing: the next pipeline asks again.
	var j joins
	hello := j.ask(context.Background())
	hello.SetErr(io.EOF)
	j.hear(*hello)
	require.NotNil(t, j.ask(context.Background()))
}

// TestJointText checks what a text becomes in a joint, and how the parts of a reply are read.
func TestJointText(t *testing.T) {
	src := Joint("-- KEYS[1] and ARGV[12]\nreturn {KEYS[1], ARGV[12], redis.call('TIME')} -- KEYS", 2, 12, 11)
	require.Contains(t, src, "local function one(K1, K2, A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12)\n")
	require.Contains(t, src, "return {K1, A12, began} -- KEYS\nend\n")
	require.Contains(t, src, "ARGV[a + 11])\n")
	require.Contains(t, src, "k, a = k + 2, a + 11\n")
	for _, bad := range []string{"return #KEYS", "return KEYS[i]", "local a = ARGV"} {
		require.Empty(t, Joint(bad, 1, 1, 1), bad)
	}
	for _, list := range [][]any{nil, {int64(1)}, {int64(-3), 1}, {"1", 1}, {int64(3), 1, 2}} {
		_, rest, err := part(list)
		require.ErrorIs(t, err, errJoint, "%v", list)
		require.Empty(t, rest)
	}
	for text, want := range map[string]string{"WRONGTYPE Operation": "WRONGTYPE Operation", "user_script:1: attempt": "ERR user_script:1: attempt"} {
		_, rest, err := part([]any{int64(-2), text, "rest"})
		require.Equal(t, scriptError(want), err)
		require.Equal(t, retry.Executed, Classify(err))
		require.Equal(t, []any{"rest"}, rest)
	}
	_, _, err := part([]any{int64(-2), "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'."}) // of Redis before 7
	require.Equal(t, retry.NotExecuted, Classify(err))
	_, _, err = part([]any{int64(-1), nil})
	require.Equal(t, redis.Nil, err)
	require.False(t, strings.Contains(src, "@"))
}

func TestSource(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	files := fstest.MapFS{
		"scripts/a.lua":        file("-- a: does it.\n\nlocal x\ndo\n  --#use twice\nend\n--#use twice\nreturn x -- --#use is no use here\n"),
		"scripts/shared/twice": file("never"),
		"scripts/b.lua":        file("--#use nothing\n"),
	}
	files["scripts/shared/twice.lua"] = file("x = 1\n\nx = 2\n")
	require.Equal(t, "-- a: does it.\n\nlocal x\ndo\n  x = 1\n\n  x = 2\nend\nx = 1\n\nx = 2\nreturn x -- --#use is no use here\n", Source(files, "a"))
	require.PanicsWithError(t, "ratelimiter: the script b: open scripts/shared/nothing.lua: file does not exist", func() { Source(files, "b") })
	require.Panics(t, func() { Source(files, "c") })
}
