// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/retry"
)

// replies is what a fake server says to a request: it accepts a connection, and has a reply to any other command.
func replies(request string) (string, bool) {
	if strings.Contains(request, "hello") {
		return "-ERR unknown command\r\n", false
	}
	return "*1\r\n:1\r\n", false
}

// aHang is a function of a redis client that returns only when its context ends, while it is set.
type aHang struct{ atomic.Bool }

func (h *aHang) wait(ctx context.Context) error {
	if h.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// TestFunctionOfAClientThatHangs has the functions of a redis client that belong to its user return only with their context, as one
// does that asks a vault which does not reply. A call whose context never ends gives its connection back after clientPatience,
// so that the pool is not full for good, and a probe says then that it could not ask.
func TestFunctionOfAClientThatHangs(t *testing.T) {
	for name, set := range map[string]func(o *redis.Options, wait func(ctx context.Context) error){
		"credentials": func(o *redis.Options, wait func(ctx context.Context) error) {
			o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) { return "", "", wait(ctx) }
		},
		"on connect": func(o *redis.Options, wait func(ctx context.Context) error) {
			o.OnConnect = func(ctx context.Context, _ *redis.Conn) error { return wait(ctx) }
		},
	} {
		for shape, ctx := range map[string]context.Context{
			"background": context.Background(),
			"values":     context.WithValue(context.Background(), toNode{}, nil),
		} {
			t.Run(name+", "+shape, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var hang aHang
					o := &redis.Options{Addr: "127.0.0.1:1", DisableIdentity: true, Protocol: 2, MaxRetries: -1, PoolSize: 32, Dialer: dialing(replies)}
					set(o, hang.wait)
					rdb := redis.NewClient(o)
					defer rdb.Close()
					d, s := Of(rdb), New("s", "return {1}", 1, 0)
					evalsha, err := s.Command([]string{"key"})
					require.NoError(t, err)

					hang.Store(true)
					begin, ended := time.Now(), make(chan error, 20)
					for range cap(ended) { // some leave alone, and some together
						go func() {
							_, err := s.Once(ctx, d, evalsha)
							ended <- err
						}()
					}
					probed := make(chan error, 1)
					go func() { probed <- Probe(d, "key", []any{"ping"}, time.Second) }()
					time.Sleep(3 * time.Second)
					hang.Store(false)
					err = <-probed
					require.Equal(t, clientPatience+time.Second/ticks, time.Since(begin), "from the look after the connection was made")
					failure, _ := err.(*retry.Error)
					require.True(t, failure != nil && failure.Local && !failure.Silent, "%v", err)
					for range cap(ended) {
						<-ended
					}
					require.LessOrEqual(t, time.Since(begin), clientPatience+eraLasts)

					stats := rdb.PoolStats()
					require.Equal(t, stats.TotalConns, stats.IdleConns, "nobody holds a connection")
					_, err = s.Once(ctx, d, evalsha)
					require.NoError(t, err, "as before")
					require.NoError(t, Probe(d, "key", []any{"ping"}, time.Second))
					require.LessOrEqual(t, time.Since(begin), clientPatience+eraLasts)
				})
			})
		}
	}
}

// TestCallMayOutlastAnEra checks that the context of a call that begins late in an era ends no sooner than that of one which begins
// early in it, and that a deadline, which go-redis would apply to replies, is not set.
func TestCallMayOutlastAnEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Dispatcher{}
		early := d.bound(context.Background())
		time.Sleep(eraLasts - 1)
		late := d.bound(context.Background())
		require.Same(t, early, late)
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		next := d.bound(context.Background())
		require.NotSame(t, early, next)
		time.Sleep(clientPatience - 2)
		synctest.Wait()
		require.NoError(t, late.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, late.Err(), errPatience)
		<-late.Done()
		require.NoError(t, next.Err())
		_, ok := next.Deadline()
		require.False(t, ok)

		ctx, cancel := context.WithCancel(context.Background())
		require.Equal(t, ctx, d.bound(ctx), "one that ends is left alone")
		cancel()
	})
}

// TestServerThatIsSilentInTheHandshake checks that a handshake of TLS without a reply is a silence, as the wait for the reply to a
// command is, although go-redis takes it for a part of the dial.
func TestServerThatIsSilentInTheHandshake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody reads
	require.NoError(t, err)
	defer l.Close()
	rdb := redis.NewClient(&redis.Options{Addr: l.Addr().String(), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DialTimeout: time.Hour})
	defer rdb.Close()
	err = Probe(rdb, "key", []any{"ping"}, 100*time.Millisecond)
	failure, _ := err.(*retry.Error)
	require.True(t, failure != nil && failure.Silent, "%v", err)
}

// TestHalfAReplyIsSilence checks that a server which sends a part of its first reply, and then nothing, is silent.
func TestHalfAReplyIsSilence(t *testing.T) {
	for _, part := range []string{"%", "%7\r\n$6\r\nser"} {
		synctest.Test(t, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: dialing(func(string) (string, bool) { return part, false })})
			begin := time.Now()
			err := Probe(rdb, "key", []any{"ping"}, time.Second)
			failure, _ := err.(*retry.Error)
			require.True(t, failure != nil && failure.Silent, "%v", err)
			require.LessOrEqual(t, time.Since(begin), time.Second+time.Second/ticks)
			require.NoError(t, rdb.Close())
		})
	}
}

// TestSweepWaitsForThePoolToDial checks that calls succeed after a sweep of a pool whose connections have all failed, although
// go-redis then dials only once a second and fails calls with the error of an earlier dial until one succeeds.
func TestSweepWaitsForThePoolToDial(t *testing.T) {
	for i := range 6 {
		down, used := []time.Duration{10 * time.Millisecond, 900 * time.Millisecond, 1010 * time.Millisecond}[i%3], i >= 3
		synctest.Test(t, func(t *testing.T) {
			var up atomic.Bool
			serve := dialing(replies)
			rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DisableIdentity: true, Protocol: 2, MaxRetries: -1, DialerRetries: 1, PoolSize: 4,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if !up.Load() {
						return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
					}
					return serve(ctx, network, addr)
				}})
			ping := func() error { return rdb.Do(context.Background(), "ping").Err() }
			if used { // one connection works, and somebody has it
				up.Store(true)
				conn := rdb.Conn()
				defer conn.Close()
				require.NoError(t, conn.Process(context.Background(), redis.NewCmd(context.Background(), "ping")))
				up.Store(false)
			}
			for range 8 {
				require.ErrorIs(t, ping(), syscall.ECONNREFUSED)
			}
			time.Sleep(down)
			up.Store(true)
			require.ErrorIs(t, ping(), syscall.ECONNREFUSED, "although it is up")
			Sweep(rdb, "key", []any{"ping"})
			require.NoError(t, ping())
			require.NoError(t, rdb.Close())
			time.Sleep(2 * time.Second)
		})
	}
}

// TestSweepOfAPoolThatCannotDial checks that a sweep of a pool that is empty ends.
func TestSweepOfAPoolThatCannotDial(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"refused":  {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, redials},
		"other":    {errors.New("no"), 0},
		"no reply": {nil, redials},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Minute,
					Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
						if c.err == nil {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return nil, c.err
					}})
				begin := time.Now()
				Sweep(rdb, "key", []any{"ping"})
				require.Equal(t, c.want, time.Since(begin))
				require.NoError(t, rdb.Close())
				time.Sleep(2 * time.Minute)
			})
		})
	}
}
