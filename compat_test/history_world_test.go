// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

const (
	historyClients = 3
	historyCallers = 6
	historyLength  = 5 // operations of each caller
	historyShort   = 400 * time.Millisecond
	historyChecks  = time.Minute // usually a few ms
	// historyLeavers is enough; each caller that leaves makes a history harder to check.
	historyLeavers = 3
	historyTurns   = 20 // at most, until one can be judged
)

// A history records what several clients requested of one limiter at the same time, when they did, and the replies
// that they got. No client releases: a release between a grant and its repeated request changes the member by which
// the grant is found.
type history struct {
	testing.TB
	past, through *redis.Client
	limiters      []*ratelimiter.RateLimiter // the same limiter, by client
	mine          *ratelimiter.RateLimiter   // not through the proxy
	rate          ratelimiter.Rate
	began         time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
	waits      []historyWait
	leaving    atomic.Int64
	leavers    int
	told       int64 // permits
	faults     atomic.Int64
	slow       atomic.Bool // no history that can be judged, because the machine stood still
}

// A historyWait is how long, in ns, a caller of a client had waited for longer than an interval.
type historyWait struct {
	client      int
	from, until int64
}

// A historyPlan tells how n histories are made, several at a time, each on its own limiter.
type historyPlan struct {
	n        int
	interval time.Duration
	share    float64                                      // of the replies that are lost
	doubles  bool                                         // of the requests that Redis gets twice, instead
	clients  int                                          // historyClients if it is not more
	jar      *jar                                         // the jar whose scripts the server has to know, if any
	play     func(h *history, rng *rand.Rand, client int) // one operation of one caller
	settle   func(h *history)                             // after all callers have returned
}

// A judged is a set of histories with the verdicts of the checker.
type judged struct {
	histories []*history
	verdicts  []porcupine.CheckResult
	counts    map[porcupine.CheckResult]int
}

func (plan historyPlan) run(t *testing.T) judged {
	t.Helper()
	seed := newTwinSeed(t).run
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed)
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr())
	losers := newLoser(seed, plan.share)
	losers.doubles = plan.doubles
	p.Judge(losers.judge)
	past := server.Client(t)
	through := server.Client(t, func(o *redis.Options) { o.Addr = p.Addr() })
	if plan.jar != nil {
		require.NoError(t, plan.jar.load(t.Context(), past))
	}
	var clients []*ratelimiter.Client
	for range max(plan.clients, historyClients) { // one id, so that PER_CLIENT is one limiter as well
		clients = append(clients, clienttest.New(t, through, ratelimiter.WithClientID("history")))
	}
	name, began := redistest.Key(t), time.Now()
	out := judged{make([]*history, plan.n), make([]porcupine.CheckResult, plan.n), map[porcupine.CheckResult]int{}}
	one := func(i, turn int) *history {
		h := &history{TB: t, past: past, through: through, began: began}
		rng := rand.New(rand.NewPCG(seed, uint64(i)+2))
		h.rate = ratelimiter.Rate{Type: ratelimiter.RateType(i & 1), Permits: 8 + rng.Int64N(25), Interval: plan.interval}
		limiter := fmt.Sprintf("%s%d.%d", name, i, turn)
		for _, c := range clients {
			h.limiters = append(h.limiters, c.RateLimiter(limiter))
		}
		h.mine = clienttest.New(t, past, ratelimiter.WithClientID("history")).RateLimiter(limiter)
		if err := h.mine.SetRate(t.Context(), h.rate); err != nil {
			t.Error(err)
			return h
		}
		h.play(plan.play, rng)
		plan.settle(h)
		return h
	}
	var again atomic.Int64
	each(plan.n, 32, func(i int) {
		h := one(i, 0)
		for turn := 1; h.slow.Load() && turn < historyTurns; turn++ {
			again.Add(1)
			h = one(i, turn)
		}
		if !h.slow.Load() {
			out.histories[i] = h
		}
	})
	out.histories = slices.DeleteFunc(out.histories, func(h *history) bool { return h == nil })
	redistest.Measured(t, 2*len(out.histories) > plan.n, "the machine stood still in all but %d of %d histories", len(out.histories), plan.n)
	plan.n = len(out.histories)
	played := time.Since(began)
	var notJudged atomic.Int64
	each(plan.n, runtime.GOMAXPROCS(0), func(i int) { // afterwards, because it would delay the callers
		h := out.histories[i]
		operations := h.judgeable()
		notJudged.Add(int64(len(h.operations) - len(operations)))
		out.verdicts[i] = porcupine.CheckOperationsTimeout(historyModel(h.rate.Permits, plan.interval), operations, historyChecks)
	})
	operations, grants := 0, 0
	for i, h := range out.histories {
		out.counts[out.verdicts[i]]++
		operations += len(h.operations)
		for _, o := range h.operations {
			if o.Output.(historyAnswer).granted {
				grants++
			}
		}
	}
	t.Logf("%d histories of %d operations, %d of them grants, with %d replies lost, played in %v, judged in %v, %d played again, %d rejections beside one that waited not judged: %v",
		plan.n, operations, grants, p.Counts().LostReplies, played.Round(time.Millisecond),
		(time.Since(began) - played).Round(time.Millisecond), again.Load(), notJudged.Load(), out.counts)
	require.Equal(t, plan.share > 0, p.Counts().LostReplies+p.Counts().Doubled > 0)
	return out
}

// each calls f for 0 to n-1, atOnce of them at a time.
func each(n, atOnce int, f func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				f(int(i) - 1)
			}
		})
	}
	workers.Wait()
}

// play runs all callers.
func (h *history) play(once func(h *history, rng *rand.Rand, client int), rng *rand.Rand) {
	var callers sync.WaitGroup
	for caller := range historyCallers {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(caller)))
		callers.Go(func() {
			for range historyLength {
				once(h, rng, caller%len(h.limiters))
			}
		})
	}
	callers.Wait()
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// clock returns the time of Redis, in ms.
func (h *history) clock() int64 {
	now, err := h.past.Time(h.Context()).Result()
	if err != nil {
		h.Error(err)
	}
	return now.UnixMilli()
}

func (h *history) add(call, ret int64, in historyAsk, out historyAnswer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if out.granted {
		h.told += in.permits
	}
	h.operations = append(h.operations, porcupine.Operation{Input: in, Call: call, Output: out, Return: ret})
}

// take records one request by a caller of a client. decided is the instant of the decision, where the reply tells it.
func (h *history) take(client int, permits int64, ask func() (granted bool, decided time.Time, err error)) {
	before := h.clock() - 1 // a script sees the clock as it was when it began
	out := historyAnswer{lo: before}
	call := h.now()
	granted, decided, err := ask()
	ret := h.now()
	if h.failed(err) {
		return
	}
	if ret-call >= 3*int64(h.rate.Interval) {
		h.slow.Store(true) // too many grants may have expired untold
	}
	out.granted = granted
	if out.hi = decided.UnixMilli(); decided.IsZero() {
		out.hi = h.clock()
	} else if !granted {
		out.lo = out.hi // a grant may be older than the reply that arrived
	}
	in := historyAsk{kind: kindTake, client: client, permits: permits}
	h.add(call, ret, in, out)
	in.kind = kindLeave
	// A grant that had expired when the request was sent again is one that nobody was told of. Redis counts in whole ms.
	for end := ret - int64(h.rate.Interval-2*time.Millisecond); end >= call; end -= int64(h.rate.Interval) {
		out.hi -= h.rate.Interval.Milliseconds()
		h.add(call, never, in, historyAnswer{lo: before, hi: out.hi})
	}
}

// acquire makes one request of ours that waits.
func (h *history) acquire(rng *rand.Rand, client int) {
	permits, w := 1+rng.Int64N(4), historyWait{client: client, from: h.now() + int64(h.rate.Interval)}
	h.take(client, permits, func() (bool, time.Time, error) {
		err := h.limiters[client].Acquire(h.Context(), permits)
		w.until = h.now()
		return true, time.Time{}, err
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits = append(h.waits, w)
}

// judgeable returns the operations without the rejections that are due to a caller of the same client that had waited for
// longer than an interval: permits are then kept for that caller, and the model knows of none that are kept.
func (h *history) judgeable() []porcupine.Operation {
	return slices.DeleteFunc(slices.Clone(h.operations), func(o porcupine.Operation) bool {
		in := o.Input.(historyAsk)
		return in.kind == kindTake && !o.Output.(historyAnswer).granted && slices.ContainsFunc(h.waits, func(w historyWait) bool {
			return w.client == in.client && o.Call < w.until && o.Return > w.from
		})
	})
}

// failed reports whether err is not nil. On a machine that stands still Redis can seem unavailable; what else fails,
// fails the test.
func (h *history) failed(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, ratelimiter.ErrUnavailable):
		h.slow.Store(true)
	default:
		h.Errorf("%v", err)
	}
	return true
}

// read records the available permits. It does not go through the proxy.
func (h *history) read() int64 {
	out := historyAnswer{lo: h.clock() - 1}
	call := h.now()
	var err error
	out.value, err = h.mine.AvailablePermits(h.Context())
	ret := h.now()
	if h.failed(err) {
		return out.value
	}
	out.hi = h.clock()
	h.add(call, ret, historyAsk{kind: kindRead}, out)
	return out.value
}

// leave records a caller that got no reply.
func (h *history) leave(call, permits int64) {
	h.mu.Lock()
	id := h.leavers
	h.leavers++
	h.mu.Unlock()
	for _, kind := range []historyKind{kindLeave, kindBack} {
		h.add(call, never, historyAsk{kind: kind, permits: permits, id: id}, historyAnswer{hi: never})
	}
}

// try makes one request of ours that does not wait.
func (h *history) try(rng *rand.Rand, client int) {
	permits := 1 + rng.Int64N(4)
	h.take(client, permits, func() (bool, time.Time, error) {
		if rng.IntN(3) == 0 {
			granted, err := h.limiters[client].TryAcquire(h.Context(), permits, 0)
			return granted, time.Time{}, err
		}
		r, err := h.limiters[client].Allow(h.Context(), permits)
		return r.Granted, r.Time, err
	})
}

// String returns the operations in the order of their calls, which is what is needed to judge a history by hand. Calls
// and returns are in ms since the first call.
func (h *history) String() string {
	operations := slices.SortedFunc(slices.Values(h.operations), func(a, b porcupine.Operation) int {
		return cmp.Compare(a.Call, b.Call)
	})
	ms := func(ns int64) float64 { return float64(ns-operations[0].Call) / 1e6 }
	lines := []string{fmt.Sprintf("rate %+v", h.rate)}
	for _, o := range operations {
		in, out, ret := o.Input.(historyAsk), o.Output.(historyAnswer), "never"
		if o.Return != never {
			ret = fmt.Sprintf("%.1f", ms(o.Return))
		}
		lines = append(lines, fmt.Sprintf("%8.1f .. %-8s %+v %+v", ms(o.Call), ret, in, out))
	}
	return strings.Join(lines, "\n")
}
