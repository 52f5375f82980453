// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// inACommand returns a function that reports whether n calls of a script leave in one command.
func inACommand(a Algorithm, n int) func(requests [][]string) bool {
	return func(requests [][]string) bool {
		for _, words := range requests {
			if strings.HasPrefix(words[0], "eval") && words[2] == strconv.Itoa(n*a.model().Script.Keys) {
				return true
			}
		}
		return false
	}
}

// together calls f with 0 to n-1, whose calls leave in one command, and first with -8 to -1, behind whose calls the others wait.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := -8; i < n; i++ {
		wg.Go(func() { f(i) })
		synctest.Wait()
	}
	wg.Wait()
}

// TestReplyThatEndsEarly breaks the connection at each byte of the reply to calls of several keys in one command: calls that are
// granted permits, and calls that give them back. Nothing is taken twice, and nobody gets back what others hold. Every caller is
// told what became of its call, or, without replays, that this is not known.
func TestReplyThatEndsEarly(t *testing.T) {
	const keys, others, permits = 3, 50, 7
	algorithms := roomy(100_000)
	algorithms["calendar quota"] = CalendarQuota{Permits: 100_000, Per: Month, Location: time.UTC}
	for kind, a := range algorithms {
		if a.model().Reserves {
			continue // what is available says nothing of what is reserved
		}
		for _, replays := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, replays %v", kind, replays), func(t *testing.T) {
				redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
					ctx, cutter := t.Context(), &redistest.Cutter{Delay: time.Millisecond}
					opts := []Option{WithClientClock()} // that of a server would not be virtual
					if !replays {
						opts = append(opts, WithoutReplay())
					}
					mine := redistest.Peer(t, rdb, cutter.Option)
					direct := redistest.Must(NewShared(rdb, redistest.Key(t), a, WithClientClock()))(t)
					l := redistest.Must(NewShared(mine, direct.config.Name, a, opts...))(t)
					used := func(l *Shared) int64 {
						return a.model().Largest - redistest.Must(l.Peek(ctx, 1))(t).Available
					}
					together(keys, func(i int) { redistest.Must(l.For(fmt.Sprint("before ", i)).Allow(ctx, 1))(t) }) // finds out that they may
					for at, more := 0, true; more; at += redistest.Cases(9, 1) {
						more = false
						of := func(l *Shared, i int) *Shared { return l.For(fmt.Sprint(at, " ", i)) }
						type caller struct {
							g      *Grant
							result ratelimiter.Result
							err    error
						}
						for i := range keys {
							redistest.Must(of(direct, i).Allow(ctx, others))(t)
						}
						time.Sleep(time.Second) // so that nobody can take the grants for those of an earlier window
						var all [keys]caller
						endingEarly := func(what string, f func(l *Shared, c *caller), least, most func(c caller) int64) {
							var before [keys]int64
							for i := range keys {
								before[i] = used(of(direct, i))
							}
							cutter.CutAt(at, inACommand(a, keys))
							together(keys, func(i int) {
								if i >= 0 {
									f(of(l, i), &all[i])
								} else if _, err := l.For(fmt.Sprint("before ", i)).Allow(ctx, 1); err != nil {
									t.Error(err)
								}
							})
							cut, matched := cutter.Cut()
							require.True(t, matched, "%s, cut at byte %d: no such calls left in one command", what, at)
							more = more || cut
							for i, c := range all {
								n := used(of(direct, i)) - before[i]
								require.GreaterOrEqual(t, n, least(c), "%s, cut at byte %d: %+v", what, at, c)
								require.LessOrEqual(t, n, most(c), "%s, cut at byte %d: %+v", what, at, c)
								if replays || !cut {
									require.NoError(t, c.err, "%s, cut at byte %d", what, at)
								} else if c.err != nil {
									require.ErrorIs(t, c.err, ratelimiter.ErrUnavailable, "%s, cut at byte %d", what, at)
								}
							}
						}
						settles := checkSettles(newSetting(a)) == nil
						ask := func(l *Shared, c *caller) {
							if settles {
								c.g, c.result, c.err = l.AllowGrant(ctx, permits)
							} else {
								c.result, c.err = l.Allow(ctx, permits)
							}
						}
						endingEarly("asking", ask, func(c caller) int64 {
							if c.err == nil && c.result.Granted {
								return permits
							}
							return 0
						}, func(caller) int64 { return permits })
						if !settles {
							continue
						}
						for i := range all {
							if all[i].g == nil {
								ask(of(l, i), &all[i])
							}
						}
						endingEarly("giving back", func(_ *Shared, c *caller) { c.err = c.g.Settle(ctx, 0) },
							func(caller) int64 { return -permits }, func(c caller) int64 {
								if c.err == nil { // less than one permit has come in meanwhile
									return 1 - permits
								}
								return 0
							})
					}
				})
			})
		}
	}
}

// TestReplyOfACallThatEndsEarly breaks the connection at each byte of the replies to calls that leave together, each in a command
// of its own. That is a failure of the connection: a call is replayed, and its permits are taken once, or without replays its caller
// is told that Redis is unavailable.
func TestReplyOfACallThatEndsEarly(t *testing.T) {
	const keys = 3
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, a := t.Context(), GCRA{per(1, time.Hour), 1000}
		for _, opts := range [][]Option{{WithSeparateCalls()}, {WithSeparateCalls(), WithoutReplay()}} {
			failed := 0
			for at, more := 0, true; more; at++ {
				cutter := &redistest.Cutter{Delay: time.Millisecond}
				mine := redistest.Peer(t, rdb, cutter.Option)
				l := redistest.Must(NewShared(mine, redistest.Key(t), a, opts...))(t)
				cutter.CutAt(at, func(requests [][]string) bool {
					return len(requests) == keys && strings.HasPrefix(requests[0][0], "eval")
				})
				var results [keys]ratelimiter.Result
				var errs [keys]error
				together(keys, func(i int) {
					r, err := l.For(fmt.Sprint(i)).Allow(ctx, 1)
					if i >= 0 {
						results[i], errs[i] = r, err
					}
				})
				cut, matched := cutter.Cut()
				require.True(t, matched, "cut at byte %d: no calls left together", at)
				for i, err := range errs {
					used := a.Burst - redistest.Must(l.For(fmt.Sprint(i)).Peek(ctx, 1))(t).Available
					if len(opts) > 1 && err != nil {
						failed++
						require.ErrorIs(t, err, ratelimiter.ErrUnavailable, "cut at byte %d", at)
						require.LessOrEqual(t, used, int64(1), "cut at byte %d", at)
						continue
					}
					require.NoError(t, err, "cut at byte %d", at)
					require.True(t, results[i].Granted, "cut at byte %d", at)
					require.EqualValues(t, 1, used, "cut at byte %d", at)
				}
				if more = cut; !more && len(opts) > 1 {
					require.GreaterOrEqual(t, failed, at, "one or more each time")
				}
				require.NoError(t, mine.Close())
			}
		}
	})
}
