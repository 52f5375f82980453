// SPDX-License-Identifier: Apache-2.0

// Package known remembers what Redis has rejected, so requests that would be rejected as well need not ask.
package known

import (
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A rejection is a reply from Redis that rejected a non-blocking request for some number of permits. It is immutable.
type rejection struct {
	permits int64
	asked   time.Time // no later than the instant at which Redis decided
	reply   permit.Reply
}

// A Rejections is a cache of rejections: for each of up to 16 wait queues, the newest one for each of up to eight numbers
// of permits. The zero value is empty. It is not safe for concurrent use.
type Rejections struct {
	byID map[link.QueueID][]*rejection // the newest first
	ids  []link.QueueID                // of byID, in no order
	hand int                           // the index in ids of the next one that makes room
}

// maxRejections is the number of wait queues, maxSizes that of numbers of permits for each. The rejections of a limiter
// whose key is longer than longestKey bytes are not kept.
const maxRejections, maxSizes, longestKey = 16, 8, 512

// Reply returns the reply that rejects a request for the given number of permits, if Redis has rejected one for the same
// number and that still holds: its time and its wait are as if Redis had replied now.
//
// A rejection holds until its wait is over, for at most bound, and for at most half the limiter's keep-alive time, so
// that cached replies do not let the limiter expire. A rejection of fewer permits is not used, because its wait may be
// shorter. A request for more permits than the rate gets no cached reply: Redis has an error for it.
func (k *Rejections) Reply(id link.QueueID, permits int64, bound time.Duration) (*permit.Reply, bool) {
	for _, x := range k.byID[id] {
		if permits == x.permits {
			return x.now(id, permits, bound)
		}
	}
	return nil, false
}

// ReplyToSome is Reply for a request that does not return the wait. So a rejection of fewer permits is used as well.
func (k *Rejections) ReplyToSome(id link.QueueID, permits int64, bound time.Duration) (*permit.Reply, bool) {
	for _, x := range k.byID[id] {
		if permits >= x.permits {
			if reply, ok := x.now(id, permits, bound); ok {
				return reply, true
			}
		}
	}
	return nil, false
}

// now returns the reply of x, moved to the present, if x still holds.
func (x *rejection) now(id link.QueueID, permits int64, bound time.Duration) (*permit.Reply, bool) {
	if permits+id.Floor > x.reply.Rate.Permits {
		return nil, false
	}
	passed := time.Since(x.asked)
	bound = min(bound, x.reply.Wait)
	if alive := x.reply.Rate.KeepAlive; alive > 0 {
		bound = min(bound, alive/2)
	}
	if passed < 0 || passed >= bound {
		return nil, false
	}
	reply := x.reply
	reply.Wait -= passed
	reply.Now = reply.Now.Add(passed)
	return &reply, true
}

// Learn keeps a as the rejection of a request for the given number of permits, by a call that began at asked.
func (k *Rejections) Learn(id link.QueueID, permits int64, asked time.Time, a *permit.Reply) {
	if len(id.Key) > longestKey || a.Wait <= 0 {
		return
	}
	if k.byID[id] == nil {
		if k.byID == nil {
			k.byID = map[link.QueueID][]*rejection{}
		}
		if len(k.ids) < maxRejections {
			k.ids = append(k.ids, id)
		} else {
			k.hand = (k.hand + 1) % maxRejections
			delete(k.byID, k.ids[k.hand])
			k.ids[k.hand] = id
		}
	}
	x := &rejection{permits: permits, asked: asked, reply: *a}
	x.reply.Granted, x.reply.Context = nil, nil
	list := []*rejection{x}
	for _, o := range k.byID[id] {
		if o.permits != permits && len(list) < maxSizes {
			list = append(list, o)
		}
	}
	k.byID[id] = list
}

// Forget makes the next request of a queue ask Redis.
func (k *Rejections) Forget(id link.QueueID) {
	if k.byID[id] != nil {
		k.forget(func(o link.QueueID) bool { return o == id })
	}
}

// ForgetLimiter makes the next request of each queue of a limiter ask Redis.
func (k *Rejections) ForgetLimiter(key string) {
	k.forget(func(o link.QueueID) bool { return o.Key == key })
}

func (k *Rejections) forget(which func(link.QueueID) bool) {
	k.ids = slices.DeleteFunc(k.ids, func(id link.QueueID) bool {
		gone := which(id)
		if gone {
			delete(k.byID, id)
		}
		return gone
	})
}

// Len returns how many rejections are known.
func (k *Rejections) Len() int { return len(k.ids) }
