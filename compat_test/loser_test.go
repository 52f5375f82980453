// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A loser draws which replies of scripts are lost: one in so many, and now and then a request. A seed repeats the
// order of the draws, but not which request gets which draw.
type loser struct {
	mu    sync.Mutex
	rng   *rand.Rand
	share float64
	lost  map[string]int // losses of a request; after lossyMost of them, any further attempt gets its reply
	lists int            // replies lost of calls for several limiters

	first   map[string]time.Time // when a request was first sent
	slowest time.Duration        // from the first to the last time that a request was sent

	doubles bool // nothing is lost; requests reach Redis twice
}

func newLoser(seed uint64, share float64) *loser {
	return &loser{rng: rand.New(rand.NewPCG(seed, 1)), share: share, lost: map[string]int{}, first: map[string]time.Time{}}
}

// sameRequest returns what a script call keeps when it is sent again: the member that it is to store, if there is one,
// and everything otherwise.
func sameRequest(words []string) string {
	for _, w := range words[3:] {
		if len(w) == 21 && w[0] == 16 || len(w) == 20 && strings.HasPrefix(w, "\x08\x00") {
			return w
		}
	}
	return strings.Join(words, "\x00")
}

func (l *loser) judge(words []string) (f redistest.Fault) {
	if !strings.HasPrefix(strings.ToLower(words[0]), "eval") {
		return f
	}
	request := sameRequest(words)
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, known := l.first[request]; known {
		l.slowest = max(l.slowest, time.Since(first))
	} else {
		l.first[request] = time.Now()
	}
	if l.lost[request] >= lossyMost || l.rng.Float64() >= l.share {
		return f
	}
	if l.doubles {
		f.Twice = true
		return f
	}
	l.lost[request]++
	f.Lose, f.Reset = redistest.LoseReply, l.rng.IntN(2) == 0
	if l.rng.IntN(20) == 0 {
		f.Lose = redistest.LoseRequest
	} else if words[2] != "3" {
		l.lists++
	}
	return f
}
