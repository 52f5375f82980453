package compat_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

func TestNewestExplore(t *testing.T) {
	rdb := redistest.Client(t)
	var v version
	for _, w := range allVersions {
		if w.name == "3.13.4" {
			v = w
		}
	}
	seen, other := startPeer(t, v, rdb.Options().Addr), startPeer(t, v, rdb.Options().Addr)
	const lasts = 6 * time.Second
	for _, rate := range []int{1, 10} {
		for _, interval := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
			for _, n := range []int{1, rate} {
				for _, who := range []string{"java try", "java block", "go try", "go acquire"} {
					name := redistest.Key(t)
					require.True(t, seen.truth(t, "trySetRate", name, overall, rate, interval))
					h := seen.begin("hammer", name, 4, lasts, 1, "try", 1, 0)
					var o *pending
					var wg sync.WaitGroup
					ctx, cancel := context.WithTimeout(t.Context(), lasts)
					switch who {
					case "java try":
						o = other.begin("hammer", name, 4, lasts, n, "try", 1, 0)
					case "java block":
						o = other.begin("hammer", name, 4, lasts, n, "block", 1, 0)
					default:
						l := newGoSide(t, rdb, v, other.id).client.RateLimiter(name)
						for range 4 {
							wg.Go(func() {
								for ctx.Err() == nil {
									if who == "go try" {
										r, _ := l.Try(ctx, int64(n))
										if !r.Granted {
											time.Sleep(time.Millisecond)
										}
									} else {
										_ = l.Acquire(ctx, int64(n))
									}
								}
							})
						}
					}
					wg.Wait()
					cancel()
					<-time.After(0)
					if who == "java block" {
						time.Sleep(lasts)
						_, _ = o.cancel()
					}
					text, err := h.wait(callLimit)
					require.NoError(t, err)
					l, err := parseLoad(text)
					require.NoError(t, err)
					g := 0
					if o != nil {
						text, err := o.wait(callLimit)
						require.NoError(t, err)
						l, err := parseLoad(text)
						require.NoError(t, err)
						g = int(l.granted)
					}
					fmt.Printf("rate %d in %v, n %d, beside %s: %d errors of %d calls (%d granted, other %d) %v\n", rate, interval, n, who, l.errors, l.errors+l.granted+l.refused, l.granted, g, len(l.kinds))
				}
			}
		}
	}
}
