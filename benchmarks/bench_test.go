// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// The main rows as ordinary benchmarks, for benchstat and for the profiles of go test.

func BenchmarkAcquire(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		eachContestant(b, fmt.Sprintf("callers=%d", callers), loadRow{callers: callers, limiters: 1})
	}
}

func BenchmarkAcquireManyLimiters(b *testing.B) {
	eachContestant(b, "callers=64/limiters=10000", loadRow{callers: 64, limiters: 10_000})
}

func BenchmarkReject(b *testing.B) {
	eachContestant(b, "callers=64", loadRow{callers: 64, limiters: 1, reject: true})
}

func eachContestant(b *testing.B, name string, r loadRow) {
	all := testBench(b)
	serial := 0
	for _, c := range all.contestants {
		// throttled returns errors under load on one limiter, which go test has no figure for.
		if !r.takes(c) || c.about().fallible && r.limiters == 1 {
			continue
		}
		b.Run(name+"/"+c.about().key, func(b *testing.B) {
			serial++
			j := r.job(fmt.Sprintf("b.%d.", serial))
			s := redistest.Must(c.open(b.Context(), j))(b)
			if r.reject {
				require.NoError(b, exhaust(b.Context(), s, j, c.about().held(j)))
			}
			redistest.Must(resetUsage(b.Context(), all.rdb))(b)
			t := parallel(b, r.callers, s.(*goSession).ask)
			require.NoError(b, r.check(b.Context(), c, s, t))
		})
	}
}

// parallel makes b.N requests from that many goroutines.
func parallel(b *testing.B, callers int, ask try) tally {
	var granted, rejected atomic.Int64
	one := func(ctx context.Context, pick uint64) bool {
		n, err := ask(ctx, pick)
		if err != nil {
			b.Error(err)
			return false
		}
		if n == 0 {
			rejected.Add(1)
		}
		granted.Add(n)
		return true
	}
	ctx := b.Context()
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	if callers == 1 {
		for i := range b.N {
			if !one(ctx, uint64(i)) {
				break
			}
		}
	} else {
		b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
		var seeds atomic.Uint64
		b.RunParallel(func(pb *testing.PB) {
			pick := seeds.Add(1)
			for pb.Next() {
				// A cheap walk over the limiters, different in each goroutine.
				pick = pick*6364136223846793005 + 1442695040888963407
				if !one(ctx, pick>>33) {
					return
				}
			}
		})
	}
	b.StopTimer()
	return tally{Granted: granted.Load(), Rejected: rejected.Load(), Elapsed: time.Since(began)}
}
