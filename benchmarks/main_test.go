// SPDX-License-Identifier: Apache-2.0

// Package benchmarks compares this library with Redisson in Java, with its script sent by Go, and with other limiters in
// Redis. README.md says how to run it, and how to read what it prints.
package benchmarks

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/redistest/worker"
)

var rounds = flag.Int("rounds", 1, "how often to run what -bench names, so that contestants take turns")

// local is the redis-server of this process. Each cell empties it first.
var local place

func TestMain(m *testing.M) {
	worker.Main(new(share))
	flag.Parse()
	if os.Getenv("RATELIMITER_LANE") == "" {
		_ = os.Setenv("RATELIMITER_LANE", "redis") // INFO, SLOWLOG and the scripts of others need a real server
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	server, err := redistest.NewServer("redis-server", os.TempDir()) // it writes no file
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks: install redis-server:", err)
		return 1
	}
	defer server.Close()
	local = placeOf(server.Addr())
	for range *rounds {
		code = max(code, m.Run())
	}
	return code
}

// BenchmarkRow measures each contestant in each row that it takes part in. The parts of a name are those of which benchstat
// makes rows and columns.
func BenchmarkRow(b *testing.B) {
	for _, r := range rows() {
		b.Run("row="+r.name, func(b *testing.B) {
			at := r.at(b)
			for _, c := range contestants() {
				if !r.takes.MatchString(c.name) {
					continue
				}
				b.Run("by="+c.name, func(b *testing.B) {
					if !c.java && !r.whole {
						b.ReportAllocs()
					}
					for range r.times(b.N) {
						at.empty(b)
						r.run(b, at, c, b.N)
					}
				})
			}
		})
	}
}

// A meter is what a row needs of a testing.B. A row ends it if what callers were told is not what Redis holds.
type meter interface {
	testing.TB
	timer
	ReportMetric(n float64, unit string)
}

type timer interface {
	ResetTimer()
	StopTimer()
}

// untimed is the timer of what is not measured.
type untimed struct{}

func (untimed) ResetTimer() {}
func (untimed) StopTimer()  {}

// short returns the smaller of two sizes in a run that only shows that everything works.
func short(size, small int) int {
	if testing.Short() {
		return small
	}
	return size
}
