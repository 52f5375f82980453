// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestErrorsOfSomeCalls checks that each call of a pipeline gets its own reply.
func TestErrorsOfSomeCalls(t *testing.T) {
	replies := map[string]error{
		"3": nil,
		"4": redisError("LOADING Redis is loading the dataset in memory"),
		"5": redisError("OOM command not allowed when used memory > 'maxmemory'."),
		"6": nil,
		"7": redisError("WRONGTYPE Operation against a key holding the wrong kind of value"),
		"8": redisError("MOVED 1 127.0.0.1:7001"), // of a client that knows no cluster
	}
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		h.judge = func(cmd redis.Cmder) bool {
			err := replies[fmt.Sprint(cmd.Args()[4])]
			cmd.SetErr(err)
			return err != nil
		}
		h.fill()
		for name := 3; name <= 8; name++ {
			h.begin(context.Background(), fmt.Sprint(name), func(reply any, err error) {
				require.Equal(t, replies[fmt.Sprint(name)], err)
				require.Equal(t, err == nil, reply == fmt.Sprint(name))
			})
		}
		h.wg.Wait()
		require.Equal(t, []string{"500µs 6"}, h.sizes())
	})
}

// TestPipelinesThatKeepRedisForLong checks that the next pipelines have fewer calls after one that has taken Redis too
// long, by its own clock, and that they grow again.
func TestPipelinesThatKeepRedisForLong(t *testing.T) {
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		clocked := New("clocked", "return ARGV[1]", 1, 1)
		clocked.Clock = func(reply []any) (time.Time, bool) { return reply[0].(time.Time), true }
		now, each := time.UnixMilli(1), 5*time.Millisecond
		h.judge = func(cmd redis.Cmder) bool {
			now = now.Add(each)
			cmd.(OnceCmd).SetVal([]any{now})
			return true
		}
		leave := func(calls int) {
			h.pipelines, h.began = nil, time.Now()
			for range calls {
				h.wg.Go(func() {
					cmd, _ := clocked.Command([]string{"k"}, "c")
					_, err := clocked.Once(context.Background(), h.d, cmd)
					require.NoError(t, err)
				})
				synctest.Wait()
			}
			h.wg.Wait()
		}
		leave(600)
		sizes := h.sizes()
		require.Equal(t, []string{"500µs 64", "500µs 64"}, sizes[fewCalls:fewCalls+2])
		require.True(t, strings.HasSuffix(sizes[len(sizes)-1], "s 2"), sizes)
		require.Greater(t, len(sizes), 100, "most have two calls")
		each = 10 * time.Microsecond
		leave(1000)
		sizes = h.sizes()
		require.Equal(t, []string{"500µs 2", "500µs 2"}, sizes[fewCalls:fewCalls+2])
		all := strings.Join(sizes, ",")
		require.Contains(t, all, "s 64")
		require.Equal(t, 2, strings.Count(all, ",4ms "), "a third leaves once pipelines are as large as they may be: %s", all)
		require.Equal(t, 3, strings.Count(all, ",7.5ms "), all)

		// One pipeline that takes long changes nothing.
		slow := 0
		each = 0
		quick := h.judge
		h.judge = func(cmd redis.Cmder) bool {
			if slow++; slow == 20 {
				now = now.Add(time.Second)
			}
			return quick(cmd)
		}
		leave(fewCalls + 6*64)
		require.Equal(t, []string{"500µs 64", "500µs 64", "500µs 64", "1ms 64", "1ms 64", "1ms 64"}, h.sizes()[fewCalls:])
	})
}

// TestUnknownScripts checks that after a NOSCRIPT one call of each script carries the text, and that nobody else
// is asked for again.
func TestUnknownScripts(t *testing.T) {
	other := New("other", "return {ARGV[1]}", 1, 1)
	inHangar(t, 500*time.Microsecond, func(h *hangar) {
		known, asked := map[string]bool{}, map[any]int{}
		flushes := func(any) bool { return false }
		h.judge = func(cmd redis.Cmder) bool {
			args := cmd.Args()
			asked[args[4]]++
			if cmd.Name() == "eval" {
				known[New("", args[1].(string), 1, 1).Sha] = true
				return false
			}
			if flushes(args[4]) {
				clear(known)
			}
			if !known[args[1].(string)] {
				cmd.SetErr(redisError("NOSCRIPT No matching script. Please use EVAL."))
				return true
			}
			return false
		}
		flushes = func(name any) bool { return name == "2" && asked[name] == 1 }
		known[echo.Sha], known[other.Sha] = true, true
		h.fill()
		h.leave(4)
		for _, name := range []string{"o1", "o2"} {
			h.wg.Go(func() {
				cmd, _ := other.Command([]string{"k"}, name)
				reply, err := other.Once(context.Background(), h.d, cmd)
				require.NoError(t, err)
				require.Equal(t, name, reply)
			})
			synctest.Wait()
		}
		h.wg.Wait()
		require.Equal(t, []string{"500µs 6: 1 2 3 4 o1 o2", "1ms 5: eval 2 3 4 eval o1 o2"}, h.pipelines)

		// The cache is emptied again behind the EVAL. Whoever meets that goes by itself.
		h.pipelines, h.began = nil, time.Now()
		flushes = func(name any) bool { return name == "x" && asked[name] == 1 || name == "y" && asked[name] == 2 }
		h.fill()
		for _, name := range []string{"x", "y", "z"} {
			h.succeed(name)
		}
		h.wg.Wait()
		require.Equal(t, []string{"500µs 3: x y z", "1ms 3: eval x y z"}, h.pipelines[:2])
		require.ElementsMatch(t, []string{"1.5ms 1: y", "1.5ms 1: z", "2ms 1: eval y", "2ms 1: eval z"}, h.pipelines[2:])
	})
}

// TestHookThatFailsAPipeline checks that the panic of a hook fails the calls of its pipeline and no others, and that nobody waits
// forever for a pipeline whose goroutine a hook has ended, as a test does that fails within the hook.
func TestHookThatFailsAPipeline(t *testing.T) {
	for name, c := range map[string]struct {
		fail  func()
		text  string
		final bool
	}{
		"panic":  {func() { panic("of a hook") }, "a hook of the redis client panicked: of a hook", true},
		"Goexit": {runtime.Goexit, errGone.Error(), false},
	} {
		inHangar(t, 500*time.Microsecond, func(h *hangar) {
			h.fill()
			h.trip = func(_ context.Context, cmds []redis.Cmder) {
				if len(cmds) > 1 {
					c.fail()
				}
			}
			for range 3 {
				h.begin(context.Background(), "p", func(_ any, err error) {
					require.ErrorContains(t, err, c.text, name)
					failure := Failure(err)
					require.Equal(t, c.final, failure.Final, name)
					require.Equal(t, c.final, failure.Local, name)
					require.Equal(t, retry.Unknown, failure.Outcome, name)
				})
			}
			h.wg.Wait()
			h.leave(1)
		})
	}
}

// two returns two calls that leave together.
func two(l *lane) []*call {
	return []*call{l.d.newCall(context.Background(), echo, []any{"evalsha", echo.Sha, 1, "k", "a"}),
		l.d.newCall(context.Background(), echo, []any{"evalsha", echo.Sha, 1, "k", "b"})}
}

// TestHookThatRejects checks that an error which a hook returns without passing the commands on is that of all
// calls, whether it puts it on the commands or not.
func TestHookThatRejects(t *testing.T) {
	rejected := errors.New("rejected")
	for _, stamp := range []bool{true, false} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		rdb.AddHook(rejection{err: rejected, stamp: stamp})
		l := Of(rdb).single
		calls := two(l)
		require.Empty(t, l.exchange(context.Background(), calls, false))
		for _, c := range calls {
			require.ErrorIs(t, c.err, rejected)
		}
	}
}

type rejection struct {
	through
	err   error
	stamp bool
}

func (r rejection) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if r.stamp {
				cmd.SetErr(r.err)
			}
		}
		return r.err
	}
}

// dialing returns a Dialer whose servers write what reply returns for each request, and end the connection where it says so.
func dialing(reply func(request string) (text string, end bool)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			b := make([]byte, 1<<20)
			for {
				n, err := server.Read(b)
				if err != nil {
					return
				}
				text, end := reply(string(b[:n]))
				_, _ = server.Write([]byte(text))
				if end {
					_ = server.Close()
				}
			}
		}()
		return client, nil
	}
}

// TestConnectionThatBreaksInAPipeline checks, on go-redis' own connections, that the calls which Redis has replied to
// keep their replies, and that it is not known of the others whether they were executed.
func TestConnectionThatBreaksInAPipeline(t *testing.T) {
	const calls, replied = 10, 4
	var hellos, commands int
	rdb := redis.NewClient(&redis.Options{Addr: "fake:1", Protocol: 2, DisableIdentity: true, MaxRetries: 3, PoolSize: 1,
		Dialer: dialing(func(request string) (string, bool) {
			got := strings.Count(request, "evalsha")
			if commands += got; got == 0 {
				hellos++
				return "-ERR unknown command\r\n", false
			} else if got == 1 {
				return "$1\r\na\r\n", false
			}
			return strings.Repeat("$1\r\na\r\n", replied), true
		})})
	defer rdb.Close()
	l := Of(rdb).single
	var list []*call
	for range calls / 2 {
		list = append(list, two(l)...)
	}
	left, err := l.send(slices.Clone(list))
	require.NoError(t, err, "the first had its reply")
	for _, c := range left {
		c.wake()
	}
	for i, c := range list {
		<-c.done
		if i < replied {
			require.NoError(t, c.err)
			require.Equal(t, "a", c.reply)
			continue
		}
		require.ErrorIs(t, c.err, io.EOF)
		require.Equal(t, retry.Unknown, Classify(c.err))
		require.True(t, Failure(c.err).Shared)
	}
	require.Equal(t, calls, commands, "go-redis does not send the commands again")
	require.LessOrEqual(t, hellos, 1, "nor dials again")
}

// TestConnectionThatRedisRejects checks that the error with which Redis rejects a connection is that of all calls:
// go-redis puts an error that is a reply on none of the commands.
func TestConnectionThatRedisRejects(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "fake:1", DisableIdentity: true, Password: "p", MaxRetries: -1,
		Dialer: dialing(func(string) (string, bool) { return "-LOADING Redis is loading the dataset in memory\r\n", false })})
	defer rdb.Close()
	l := Of(rdb).single
	calls := two(l)
	require.Empty(t, l.exchange(context.Background(), calls, false))
	for _, c := range calls {
		require.ErrorContains(t, c.err, "LOADING")
		require.Equal(t, retry.NotExecuted, Failure(c.err).Outcome)
	}
}

// TestProbeLeavesNothing checks that nothing of a probe that could not connect goes on after it, which a bubble would not end
// with.
func TestProbeLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, errors.New("rejected")
		}})
		require.ErrorContains(t, Probe(rdb, "key", []any{"ping"}, time.Second), "rejected")
		synctest.Wait()
		require.Equal(t, 1, dials)
		require.NoError(t, rdb.Close())
	})
}
