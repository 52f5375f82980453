package engine

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A knownRefusal is what a reply has said about requests that do not wait and were refused. It is never changed.
type knownRefusal struct {
	permits int64     // the fewest that were refused
	asked   time.Time // no later than the instant at which Redis decided
	reply   permit.Reply
}

// A knownRefusals has the newest refusal of each limiter of a shard whose requests want that. It is bounded, whatever
// the names of the limiters are. The lock of the shard guards it.
type knownRefusals struct {
	byKey map[string]*knownRefusal
	keys  []string // of byKey, in no order
	hand  int      // the index in keys of the next one that makes room
}

// maxRefusals is how many refusals a shard knows, and longestRefused how long the keys of their limiters may be.
const maxRefusals, longestRefused = 16, 512

// refuseLocked ends a request that is known to be refused, and reports whether it is. A refusal is known for as
// long as the request allows, or until permits come back by themselves if that is sooner, or for half the time
// after which the limiter is gone without a call. A request for more than the rate is not refused but an error.
func (k *knownRefusals) refuseLocked(key string, want *Request) (Outcome, bool) {
	x := k.byKey[key]
	if x == nil || want.Permits < x.permits || want.Permits > x.reply.Rate.Permits {
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

// learnLocked records that a call which began at asked was refused that many permits.
func (k *knownRefusals) learnLocked(key string, permits int64, asked time.Time, a *permit.Reply) {
	if len(key) > longestRefused || a.Wait <= 0 {
		return
	}
	if k.byKey[key] == nil {
		if k.byKey == nil {
			k.byKey = map[string]*knownRefusal{}
		}
		if len(k.keys) < maxRefusals {
			k.keys = append(k.keys, key)
		} else {
			k.hand = (k.hand + 1) % maxRefusals
			delete(k.byKey, k.keys[k.hand])
			k.keys[k.hand] = key
		}
	}
	x := &knownRefusal{permits: permits, asked: asked, reply: *a}
	x.reply.Granted = nil
	k.byKey[key] = x
}

// forgetLocked makes the next request ask.
func (k *knownRefusals) forgetLocked(key string) {
	if k.byKey[key] == nil {
		return
	}
	delete(k.byKey, key)
	for i := range k.keys {
		if k.keys[i] == key {
			last := len(k.keys) - 1
			k.keys[i], k.keys[last] = k.keys[last], ""
			k.keys = k.keys[:last]
			return
		}
	}
}
