// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/bits"
	"time"
)

// A histogram counts latencies, each in a bucket no wider than 1/64 of it, so that a hundred thousand latencies a
// second cost neither memory nor time of the garbage collector.
type histogram [buckets]uint32

const buckets = 2048 // the last one holds 68 s and above

func (h *histogram) add(d time.Duration) { h[bucketOf(d)]++ }

func bucketOf(d time.Duration) int {
	ns := uint64(max(d, 0))
	if ns < 128 {
		return int(ns)
	}
	shift := bits.Len64(ns) - 7
	return min(shift*64+int(ns>>shift), buckets-1)
}

// lowest returns the least latency of a bucket.
func lowest(bucket int) time.Duration {
	if bucket < 128 {
		return time.Duration(bucket)
	}
	shift := bucket/64 - 1
	return time.Duration(bucket-shift*64) << shift
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// quantile returns the latency below which the share q of all latencies is, or 0 if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	var count uint64
	for _, n := range h {
		count += uint64(n)
	}
	rank, below := uint64(q*float64(count)), uint64(0)
	for i, n := range h {
		if below += uint64(n); below > rank {
			return lowest(i)
		}
	}
	return 0
}
