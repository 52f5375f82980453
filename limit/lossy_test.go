// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// lossy returns what each process gets of a limiter with room for a million permits, on a server behind a proxy that loses the
// reply of every tenth script, and hands every seventh over twice; and one that loses nothing.
func lossy(t *testing.T) (process func(name string, a Algorithm) *Shared, direct *redis.Client, proxy *redistest.Proxy) {
	redistest.NeedReal(t)
	server := redistest.Start(t)
	proxy = redistest.StartProxy(t, server.Addr())
	var scripts atomic.Int64
	proxy.Judge(func(words []string) redistest.Fault {
		if !strings.HasPrefix(strings.ToLower(words[0]), "eval") {
			return redistest.Fault{}
		}
		switch n := scripts.Add(1); {
		case n%10 == 0:
			return redistest.Fault{Lose: redistest.LoseReply}
		case n%7 == 0:
			return redistest.Fault{Twice: true}
		}
		return redistest.Fault{}
	})
	return func(name string, a Algorithm) *Shared {
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true, MaxRetries: -1})
		t.Cleanup(func() { rdb.Close() })
		return redistest.Must(NewShared(rdb, name, a))(t)
	}, server.Client(t), proxy
}

// TestRepliesLostOnARealServer checks what is spent when one reply in ten is lost to processes whose callers share calls and
// settle what they are granted, and one call in seven arrives twice.
func TestRepliesLostOnARealServer(t *testing.T) {
	process, direct, proxy := lossy(t)
	const processes, callers, calls, most = 4, 8, 30, 20
	for kind, a := range roomy(1_000_000) {
		if a.model().Reserves {
			continue
		}
		name := redistest.Key(t)
		var least, unknown atomic.Int64 // permits that were certainly used, and that may have been in addition
		var all sync.WaitGroup
		for range processes {
			l := process(name, a)
			for range callers {
				all.Go(func() {
					for range calls {
						n := 1 + rand.Int64N(most)
						if checkSettles(newSetting(a)) != nil {
							r, err := l.Allow(context.Background(), n)
							switch {
							case err == nil && r.Granted:
								least.Add(n)
							case errors.Is(err, ratelimiter.ErrUnavailable):
								unknown.Add(n)
							default:
								t.Error(kind, r, err)
							}
							continue
						}
						actual := rand.Int64N(2 * most)
						g, r, err := l.AllowGrant(context.Background(), n)
						if errors.Is(err, ratelimiter.ErrUnavailable) {
							unknown.Add(n)
							continue
						}
						if err != nil || !r.Granted {
							t.Error(kind, r, err)
							continue
						}
						switch err := g.Settle(context.Background(), actual); {
						case err == nil:
							least.Add(actual)
						case errors.Is(err, ratelimiter.ErrUnavailable):
							least.Add(min(n, actual))
							unknown.Add(max(n, actual) - min(n, actual))
						default:
							t.Error(kind, err)
						}
					}
				})
			}
		}
		all.Wait()
		spent := a.model().Largest - redistest.Must(redistest.Must(NewShared(direct, name, a))(t).Peek(t.Context(), 1))(t).Available
		t.Logf("%s: %d spent, %d certainly, %d perhaps; %d replies lost so far", kind, spent, least.Load(), unknown.Load(), proxy.Counts().LostReplies)
		// What a lost reply was granted is given back but for what may have come in meanwhile: less than a permit here.
		most := least.Load() + unknown.Load()
		if checkSettles(newSetting(a)) == nil {
			most += processes * callers * calls
		}
		require.GreaterOrEqual(t, spent, least.Load(), kind)
		require.LessOrEqual(t, spent, most, kind)
	}
}

// TestRepliesLostInFlights cuts connections in the middle of pipelines that the calls of many keys share. Redis
// runs what is behind the cut, too, and nobody is told; nothing is granted twice or lost.
func TestRepliesLostInFlights(t *testing.T) {
	redistest.NeedReal(t)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	require.Equal(t, 3, rdb.Options().MaxRetries, "go-redis would send a pipeline again")
	const keys, burst = 200, 100_000
	a := GCRA{per(1, time.Hour), burst}
	all := redistest.Must(NewShared(rdb, redistest.Key(t), a, WithSeparateCalls()))(t) // in a joint they share the reply, too: see TestReplyThatEndsEarly
	plain := redistest.Must(NewShared(server.Client(t), all.config.Name, a))(t)
	var scripts, lost atomic.Int64
	proxy.Judge(func(words []string) (f redistest.Fault) {
		if strings.HasPrefix(words[0], "eval") && scripts.Add(1)%200 == 0 {
			f.Lose, f.Reset = redistest.LoseReply, scripts.Load()%400 == 0
		}
		return f
	})
	rdb.AddHook(lostReplies{n: &lost})
	lose := int64(redistest.Cases(600, 10_000))
	var granted, unknown [keys]atomic.Int64
	var callers sync.WaitGroup
	for range 128 {
		callers.Go(func() {
			for lost.Load() < lose { // one script in 200 and what is behind it
				i := rand.IntN(keys)
				r, err := all.For(strconv.Itoa(i)).Allow(context.Background(), 1)
				switch {
				case err == nil && r.Granted:
					granted[i].Add(1)
				case errors.Is(err, ratelimiter.ErrUnavailable):
					unknown[i].Add(1)
				default:
					t.Error(r, err)
				}
			}
		})
	}
	callers.Wait()
	var told, doubts, spent int64
	for i := range keys {
		r := redistest.Must(plain.For(strconv.Itoa(i)).Peek(t.Context(), 1))(t)
		n := burst - r.Available
		require.GreaterOrEqual(t, n, granted[i].Load(), i)
		require.LessOrEqual(t, n, granted[i].Load()+unknown[i].Load(), i)
		told, doubts, spent = told+granted[i].Load(), doubts+unknown[i].Load(), spent+n
	}
	t.Logf("%d granted, %d unknown, %d spent, no reply to %d; %+v", told, doubts, spent, lost.Load(), proxy.Counts())
	require.GreaterOrEqual(t, lost.Load(), lose)
}

// lostReplies is a hook that counts the commands of pipelines that get no reply.
type lostReplies struct {
	redistest.Passing
	n *atomic.Int64
}

func (l lostReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			var reply redis.Error
			if c, ok := cmd.(dispatch.OnceCmd); ok && c.Val() == nil && c.Err() != nil && !errors.As(c.Err(), &reply) {
				l.n.Add(1)
			}
		}
		return err
	}
}
