// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/goredisson/ratelimiter/limit/limittest"
	"github.com/redis/go-redis/v9"
)

// The doubles are limiters with the defects of scripts in articles, each as small as possible.

// A double decides in Go, under a lock.
type double struct {
	mu   sync.Mutex
	most int64
	// take decides for n permits at an instant since the epoch.
	take func(now time.Duration, n int64, spend bool) limit.Result
	peek bool // whether Peek takes permits
}

func (d *double) Allow(_ context.Context, n int64) (limit.Result, error) { return d.ask(n, true) }
func (d *double) Peek(_ context.Context, n int64) (limit.Result, error)  { return d.ask(n, d.peek) }
func (d *double) ask(n int64, spend bool) (limit.Result, error) {
	switch {
	case n < 1 || n > 1<<32-1:
		return limit.Result{}, ratelimiter.ErrInvalidArgument
	case n > d.most:
		return limit.Result{}, ratelimiter.ErrPermitsExceedRate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.take(time.Duration(time.Now().UnixNano()), n, spend), nil
}

// A grantDouble gives back as many permits as it is told to, whatever has come in since.
type grantDouble struct {
	l    *double
	n    int64
	done bool
}

func allowGrant(ctx context.Context, l limit.Limiter, n int64) (limit.Result, limittest.Grant, error) {
	r, err := l.Allow(ctx, n)
	return r, &grantDouble{l: l.(*double), n: n}, err
}

func (g *grantDouble) Settle(_ context.Context, actual int64) error {
	if g.done {
		return ratelimiter.ErrSettled
	}
	g.done = true
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	g.l.take(time.Duration(time.Now().UnixNano()), actual-g.n, true)
	return nil
}

// polled returns a result without an exact wait: the caller asks again after a while.
func polled(granted bool, left int64, again time.Duration) limit.Result {
	if granted {
		again = 0
	}
	return limit.Result{Granted: granted, Available: max(0, left), Wait: again}
}

// windowDouble returns a fixed window of the given length. With countsRejected it counts what it rejects.
func windowDouble(permits int64, window time.Duration, countsRejected bool) limit.Limiter {
	var start time.Duration
	var count int64
	return &double{most: permits, take: func(now time.Duration, n int64, spend bool) limit.Result {
		if now >= start+window {
			start, count = now, 0
		}
		granted := count+n <= permits
		if spend && (granted || countsRejected) {
			count += n
		}
		return polled(granted, permits-count, start+window-now)
	}}
}

// logDouble is a sliding log of whole milliseconds. Entries older than the interval less early are
// dropped; with collapses two grants of one millisecond are one; with logsRejected a rejection is logged too.
func logDouble(permits int64, interval, early time.Duration, collapses, logsRejected bool) limit.Limiter {
	var log []time.Duration
	return &double{most: permits, take: func(now time.Duration, n int64, spend bool) limit.Result {
		now = now.Truncate(time.Millisecond)
		for len(log) > 0 && log[0] <= now-interval+early {
			log = log[1:]
		}
		granted := int64(len(log))+n <= permits
		wait := time.Millisecond
		if !granted && len(log) > 0 {
			wait = max(wait, log[min(int64(len(log))-1, int64(len(log))+n-permits-1)]+interval-now)
		}
		for range n {
			if spend && (granted || logsRejected) && (!collapses || len(log) == 0 || log[len(log)-1] != now) {
				log = append(log, now)
			}
		}
		return polled(granted, permits-int64(len(log)), wait)
	}}
}

// A racyLog looks first and adds later. In between other callers look.
type racyLog struct {
	mu      sync.Mutex
	permits int64
	log     []time.Time
}

func (l *racyLog) inUse() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.log {
		if time.Since(at) < time.Second {
			n++
		}
	}
	return n
}

func (l *racyLog) Peek(_ context.Context, n int64) (limit.Result, error) {
	return polled(l.inUse()+n <= l.permits, l.permits-l.inUse(), time.Millisecond), nil
}

func (l *racyLog) Allow(ctx context.Context, n int64) (limit.Result, error) {
	r, err := l.Peek(ctx, n)
	time.Sleep(time.Microsecond) // the way to Redis and back
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		if r.Granted {
			l.log = append(l.log, time.Now())
		}
	}
	return r, err
}

// A bucketDouble is a token bucket of doubles, with a defect.
type bucketDouble struct {
	perSecond, capacity float64
	floors              bool          // rounds down what comes in, and moves the clock on
	forgets             bool          // saves the clock of a rejected call, but not what has come in
	tick                time.Duration // the resolution of its clock
	endless             bool          // without a capacity
	absolute            bool          // takes a clock that is put back for one that is put forward
	stuck               bool          // waits until a clock that was put back is where it was
	roundsWait          time.Duration // tells waits as multiples of it
	clock               func() time.Time
}

func (b bucketDouble) limiter() limit.Limiter {
	tokens, last := b.capacity, time.Duration(0)
	return &double{most: int64(b.capacity), take: func(now time.Duration, n int64, spend bool) limit.Result {
		if b.clock != nil {
			now = time.Duration(b.clock().UnixNano())
		}
		if b.tick > 0 {
			now = now.Truncate(b.tick)
		}
		if last == 0 {
			last = now
		}
		passed := now - last
		if b.absolute {
			passed = passed.Abs()
		}
		flowed := max(0, passed.Seconds()) * b.perSecond
		if b.floors {
			flowed = float64(int64(flowed))
		}
		there := tokens + flowed
		if !b.endless {
			there = min(there, b.capacity)
		}
		granted := there >= float64(n)
		wait := time.Duration((float64(n)-there)/b.perSecond*1e6+1) * time.Microsecond
		if b.roundsWait > 0 {
			wait = wait.Truncate(b.roundsWait) + b.roundsWait
		}
		left := there
		if granted && spend {
			left -= float64(n)
		}
		if spend && (granted || !b.forgets) {
			tokens = left
		}
		if spend && (!b.stuck || now > last) {
			last = now
		}
		r := polled(granted, int64(left), wait)
		if left < b.capacity {
			r.Reset = time.Duration((b.capacity-left)/b.perSecond*1e6+1) * time.Microsecond
		}
		return r
	}}
}

// A queueDouble gives every call a turn of one permit's time, however many permits it takes.
type queueDouble struct {
	double
	each time.Duration
	free time.Time
}

func (q *queueDouble) Reserve(_ context.Context, n int64, atMost time.Duration) (limit.Result, error) {
	wait := max(0, time.Until(q.free))
	if wait > atMost {
		return limit.Result{Wait: wait - atMost}, nil
	}
	q.free = time.Now().Add(wait + q.each)
	return limit.Result{Granted: true, Wait: wait}, nil
}

// A redisDouble is a double in Redis.
type redisDouble struct {
	ask func(ctx context.Context, n int64, spend bool) (limit.Result, error)
}

func (d redisDouble) Allow(ctx context.Context, n int64) (limit.Result, error) {
	return d.ask(ctx, n, true)
}
func (d redisDouble) Peek(ctx context.Context, n int64) (limit.Result, error) {
	return d.ask(ctx, n, false)
}

// counterDouble returns a counter in Redis. Its first EXPIRE is a call of its own, which with missed is never made.
func counterDouble(rdb *redis.Client, key string, missed bool) limit.Limiter {
	return redisDouble{func(ctx context.Context, n int64, spend bool) (limit.Result, error) {
		if !spend {
			n = 0
		}
		var count int64
		for err := errors.New("not sent"); err != nil; {
			// Sent again when the reply is lost, without an id.
			count, err = rdb.Eval(ctx, `return redis.call('INCRBY', KEYS[1], ARGV[1])`, []string{key}, n).Int64()
			if err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
		switch {
		case !spend:
			return polled(true, 7-count, 0), rdb.Del(ctx, key).Err()
		case count == n && !missed:
			if err := rdb.Expire(ctx, key, time.Second).Err(); err != nil {
				return limit.Result{}, err
			}
		}
		return polled(count <= 7, 7-count, time.Second), nil
	}}
}

// setDouble returns a log in a sorted set of Redis without a TTL.
func setDouble(rdb *redis.Client, key string) limit.Limiter {
	return redisDouble{func(ctx context.Context, n int64, spend bool) (limit.Result, error) {
		now := time.Now().UnixMicro()
		rdb.ZRemRangeByScore(ctx, key, "0", decimal(now-1_000_000))
		count, err := rdb.ZCount(ctx, key, "("+decimal(now-1_000_000), "+inf").Result()
		granted := count+n <= 7
		for i := range n {
			if granted && spend {
				rdb.ZAdd(ctx, key, redis.Z{Score: float64(now), Member: decimal(now) + decimal(count+i)})
			}
		}
		return polled(granted, 7-count, time.Second), err
	}}
}

// stepDouble returns a bucket that is refilled in intervals and keeps the time of the last refill in a key of its
// own, which expires after a few intervals. Without that key it does not know that time has passed.
func stepDouble() limit.Limiter {
	tokens, last, gone := int64(8), time.Duration(0), time.Duration(0)
	return &double{most: 8, take: func(now time.Duration, n int64, spend bool) limit.Result {
		if now >= gone {
			last = now
		}
		if ends := int64((now - last) / time.Second); ends > 0 {
			tokens, last = min(8, tokens+3*ends), last+time.Duration(ends)*time.Second
		}
		granted := tokens >= n
		if granted && spend {
			tokens -= n
		}
		if spend {
			gone = now + 5*time.Second
		}
		r := polled(granted, tokens, last+time.Second-now)
		if tokens < 8 {
			r.Reset = 3 * time.Second
		}
		return r
	}}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
