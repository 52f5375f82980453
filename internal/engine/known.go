// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A cachedRejection is what a reply has said about requests that do not wait and were rejected. It is never changed.
type cachedRejection struct {
	permits int64     // the fewest that were rejected
	asked   time.Time // no later than the instant at which Redis decided
	reply   permit.Reply
}

// A cachedRejections has the newest rejection of each limiter of a shard whose requests want that. It is bounded, whatever
// the names of the limiters are. The lock of the shard guards it.
type cachedRejections struct {
	byKey map[link.ID]*cachedRejection
	keys  []link.ID // of byKey, in no order
	hand  int       // the index in keys of the next one that makes room
}

// maxRejections is how many rejections a shard knows, and longestRejected how long the keys of their limiters may be.
const maxRejections, longestRejected = 16, 512

// rejectLocked ends a request that is known to be rejected, and reports whether it is. A rejection is known for as
// long as the request allows, or until permits come back by themselves if that is sooner, or for half the time
// after which the limiter is gone without a call. A request for more than the rate is not rejected but an error.
func (k *cachedRejections) rejectLocked(key link.ID, want *Request) (Outcome, bool) {
	x := k.byKey[key]
	if x == nil || want.Permits < x.permits || want.Permits+key.Floor > x.reply.Rate.Permits {
		return Outcome{}, false
	}
	passed := time.Since(x.asked)
	bound := min(want.Known, x.reply.Wait)
	if alive := x.reply.Rate.KeepAlive; alive > 0 {
		bound = min(bound, alive/2)
	}
	if passed < 0 || passed >= bound {
		return Outcome{}, false
	}
	reply := x.reply
	reply.Wait -= passed
	reply.Now = reply.Now.Add(passed)
	return Outcome{Available: reply.Available, Wait: reply.Wait, Reply: &reply}, true
}

// learnLocked records that a call which began at asked was rejected that many permits.
func (k *cachedRejections) learnLocked(key link.ID, permits int64, asked time.Time, a *permit.Reply) {
	if len(key.Key) > longestRejected || a.Wait <= 0 {
		return
	}
	if k.byKey[key] == nil {
		if k.byKey == nil {
			k.byKey = map[link.ID]*cachedRejection{}
		}
		if len(k.keys) < maxRejections {
			k.keys = append(k.keys, key)
		} else {
			k.hand = (k.hand + 1) % maxRejections
			delete(k.byKey, k.keys[k.hand])
			k.keys[k.hand] = key
		}
	}
	x := &cachedRejection{permits: permits, asked: asked, reply: *a}
	x.reply.Granted, x.reply.Context = nil, nil
	k.byKey[key] = x
}

// forgetLocked makes the next request ask.
func (k *cachedRejections) forgetLocked(key link.ID) {
	if k.byKey[key] == nil {
		return
	}
	delete(k.byKey, key)
	for i := range k.keys {
		if k.keys[i] == key {
			last := len(k.keys) - 1
			k.keys[i], k.keys[last] = k.keys[last], link.ID{}
			k.keys = k.keys[:last]
			return
		}
	}
}

// forgetLimiterLocked makes the next request of each class of a limiter ask.
func (k *cachedRejections) forgetLimiterLocked(limiter string) {
	for _, key := range slices.Clone(k.keys) {
		if key.Key == limiter {
			k.forgetLocked(key)
		}
	}
}
