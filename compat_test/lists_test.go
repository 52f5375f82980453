// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A listLoser draws which replies are lost, as loser does, and recognizes a call that is sent again by the member
// that it is to store.
type listLoser struct {
	loser
	byScript map[int]int // replies lost, by the number of the script's keys
	first    map[string]time.Time
	slowest  time.Duration // from the first to the last time that a call was sent
}

func newListLoser(seed uint64) *listLoser {
	return &listLoser{loser: *newLoser(seed, 0.5, lossyMost), byScript: map[int]int{}, first: map[string]time.Time{}}
}

// listShort is what lossyShort is, for lists, of which the calls may be sent again one after another.
const listShort = 9 * time.Second

const (
	listKeys   = 18 // of acquire_all
	listMember = 3 + listKeys + 4
	oneMember  = 3 + 3 + 3
)

func (l *listLoser) judge(words []string) (f redistest.Fault) {
	if !strings.HasPrefix(strings.ToLower(words[0]), "eval") {
		return f
	}
	request, keys, replay := strings.Join(words, "\x00"), 3, false
	switch {
	case words[2] == fmt.Sprint(listKeys):
		request, keys, replay = words[listMember], listKeys, words[listMember-2] == "1"
	case words[2] == "3" && len(words) > oneMember && len(words[oneMember]) == 21:
		request = words[oneMember]
		replay = strings.Contains(words[oneMember+1], "replay")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, known := l.first[request]; replay && known {
		l.slowest = max(l.slowest, time.Since(first))
	} else { // the first one that comes this far: the connection may have broken before it
		l.first[request] = time.Now()
	}
	if l.lost[request] >= l.most || l.rng.Float64() >= l.share {
		return f
	}
	l.lost[request]++
	f.Lose, f.Reset = redistest.LoseReply, l.rng.IntN(2) == 0
	if l.rng.IntN(20) == 0 {
		f.Lose = redistest.LoseRequest
	} else {
		l.byScript[keys]++
	}
	return f
}

// A list is three limiters that are acquired together.
type list struct {
	limiters []*lossyLimiter
	waits    bool // AcquireAll may wait: none of the limiters is used up for an hour
}

// newLists makes lists of three limiters each. Some have limiters whose permits are used up in the course of the run,
// so that the others must keep nothing; some have short limiters, and some limiters of both types. Each kind also has
// a list whose callers give up.
func newLists(t testing.TB, past redis.UniversalClient, through []redis.UniversalClient, proxies []*redistest.Proxy, long int64) (*lossy, []list) {
	t.Helper()
	w := &lossy{TB: t, past: past, through: through, proxies: proxies}
	for i := range through {
		w.ids = append(w.ids, fmt.Sprintf("client-%d", i))
	}
	name, lists := redistest.Key(t), []list{}
	const o, p = ratelimiter.Overall, ratelimiter.PerClient
	for _, timed := range []bool{false, true} {
		for _, rates := range [][]ratelimiter.Rate{
			{{Type: o, Permits: long, Interval: lossyLong}, {Type: o, Permits: 1e6, Interval: lossyLong}, {Type: p, Permits: 1e6, Interval: lossyLong}},
			{{Type: o, Permits: 270, Interval: listShort}, {Type: o, Permits: 360, Interval: listShort}, {Type: p, Permits: 120, Interval: listShort}},
			{{Type: o, Permits: 1e6, Interval: lossyLong}, {Type: o, Permits: 270, Interval: listShort}, {Type: p, Permits: long, Interval: lossyLong}},
		} {
			l := list{waits: rates[0].Interval == listShort}
			for _, rate := range rates {
				one := &lossyLimiter{name: fmt.Sprintf("%s%d", name, len(w.limiters)), rate: rate, timed: timed,
					told: make([]atomic.Int64, len(through))}
				require.True(t, redistest.Must(clienttest.New(t, past).RateLimiter(one.name).TrySetRate(t.Context(), rate))(t))
				w.limiters, l.limiters = append(w.limiters, one), append(l.limiters, one)
			}
			lists = append(lists, l)
		}
	}
	return w, lists
}

// runLists runs callers of each client on each list until the given number of replies are lost.
func (w *lossy) runLists(seed uint64, lists []list, goal, callersOf int) *listLoser {
	w.Helper()
	losers := newListLoser(seed)
	for _, p := range w.proxies {
		p.Judge(losers.judge)
	}
	ctx, cancel := context.WithTimeout(w.Context(), 3*time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	var asked, granted, faults atomic.Int64
	for client, rdb := range w.through {
		c := clienttest.New(w, rdb, ratelimiter.WithClientID(w.ids[client]))
		w.Cleanup(func() { _ = c.Close() })
		for i := range callersOf * len(lists) {
			l, rng := lists[i%len(lists)], rand.New(rand.NewPCG(seed, uint64(1000*client+i)))
			callers.Go(func() {
				for w.lost() < goal && faults.Load() < 10 {
					timed := l.limiters[0].timed
					of := slices.Clone(l.limiters)
					rng.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
					if rng.IntN(8) == 0 {
						of = of[:1] // among the callers of one client
					}
					var demands []ratelimiter.Demand
					for _, one := range of {
						demands = append(demands, ratelimiter.Demand{Limiter: c.RateLimiter(one.name), Permits: 1 + rng.Int64N(5)})
					}
					asked.Add(1)
					r, err := ratelimiter.AllResult{}, error(nil)
					switch way := rng.IntN(3); {
					case way == 0 && l.waits && !timed:
						_, err = c.AcquireAll(ctx, demands...)
						r.Granted = err == nil
					case way > 0 && timed:
						r, err = c.TryAcquireAll(ctx, time.Duration(1+rng.IntN(30))*time.Millisecond, demands...)
					default:
						r, err = c.TryAcquireAll(ctx, 0, demands...)
					}
					switch {
					case err == nil && r.Granted:
						granted.Add(1)
						for i, one := range of {
							one.told[client].Add(demands[i].Permits)
						}
					case err == nil:
						if r.Limiter == nil || r.Wait <= 0 && !timed {
							w.Errorf("rejected by nobody: %+v", r)
						}
					case timed && errors.Is(err, ratelimiter.ErrUnavailable): // its time was up first
					default: // the last attempt always gets a reply
						faults.Add(1)
						w.Errorf("%s: %v", of[0].name, err)
					}
				}
			})
		}
	}
	callers.Wait()
	for _, p := range w.proxies {
		p.Judge(nil)
	}
	w.Logf("%d lists asked for, %d granted; replies lost of acquire_all %d, of other scripts %d; the longest sending took %v",
		asked.Load(), granted.Load(), losers.byScript[listKeys], losers.byScript[3], losers.slowest.Round(time.Millisecond))
	require.Less(w, losers.slowest, listShort, "the machine is too slow: what was granted first would be back")
	require.NotZero(w, granted.Load())
	require.Less(w, granted.Load(), asked.Load()*9/10, "rejections get lost, too")
	return losers
}

// TestLostRepliesOfLists checks that with 4,000 lost replies no permit of any of the limiters is lost, and that a
// list that is rejected by one limiter keeps no permits of the others.
func TestLostRepliesOfLists(t *testing.T) {
	seed := newTwinSeed(t).run
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed)
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr())
	w, lists := newLists(t, server.Client(t), lossyClients(t, 3, p, server), []*redistest.Proxy{p}, 400)
	ledger := startLedger(t, server.Addr())
	began := time.Now()
	losers := w.runLists(seed, lists, 4000, 4)
	t.Logf("%v, %+v", time.Since(began).Round(time.Millisecond), p.Counts())
	require.Greater(t, losers.byScript[listKeys], 1500)
	w.requireAtMostOnce(func(key string) []entry { return ledger.at(w.past, key) })
}

// TestLostRepliesOfListsInACluster checks the same where the limiters are on different nodes. They are called in
// turn, and when one of them rejects, what was granted is refunded, each grant by its id.
func TestLostRepliesOfListsInACluster(t *testing.T) {
	seed := newTwinSeed(t).run
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed)
	cluster, seen := redistest.StartCluster(t), clusterLedger{}
	byAddr, proxies := map[string]*redistest.Proxy{}, []*redistest.Proxy{}
	for _, node := range cluster.Nodes() {
		p := redistest.StartProxy(t, node.Addr())
		byAddr[node.Addr()] = p
		proxies = append(proxies, p)
		seen.watch(t, node)
	}
	var through []redis.UniversalClient
	for range 2 {
		// The nodes report their own addresses, whatever address a client dialled.
		through = append(through, cluster.Client(t, func(o *redis.ClusterOptions) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, byAddr[addr].Addr())
			}
		}))
	}
	w, lists := newLists(t, cluster.Client(t), through, proxies, 200)
	began := time.Now()
	losers := w.runLists(seed, lists, 1200, 4)
	for _, p := range proxies {
		t.Logf("%v, %+v", time.Since(began).Round(time.Millisecond), p.Counts())
		require.NotZero(t, p.Counts().LostReplies, "limiters are on all nodes")
	}
	require.Zero(t, losers.byScript[listKeys], "no script has keys of several slots")
	w.requireAtMostOnce(seen.at)
}

// A clusterLedger is a ledger for each node.
type clusterLedger struct {
	ledgers []*ledger
	nodes   []*redis.Client
}

func (c *clusterLedger) watch(t testing.TB, node *redistest.Server) {
	c.ledgers, c.nodes = append(c.ledgers, startLedger(t, node.Addr())), append(c.nodes, node.Client(t))
}

func (c *clusterLedger) at(key string) (grants []entry) {
	for i, l := range c.ledgers {
		grants = append(grants, l.at(c.nodes[i], key)...)
	}
	return grants
}

// TestOverlappingLists checks that all of 20 callers, in two processes, are served, and that no window holds more
// than its rate. Each caller wants a list of two to four of six limiters, in any order.
func TestOverlappingLists(t *testing.T) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		t.Run("one Redis", func(t *testing.T) {
			server, seen := redistest.Start(t), &clusterLedger{}
			seen.watch(t, server)
			overlap(t, []redis.UniversalClient{server.Client(t), server.Client(t)}, seen)
		})
	})
	both.Go(func() {
		t.Run("a cluster", func(t *testing.T) {
			cluster, seen := redistest.StartCluster(t), &clusterLedger{}
			for _, node := range cluster.Nodes() {
				seen.watch(t, node)
			}
			overlap(t, []redis.UniversalClient{cluster.Client(t), cluster.Client(t)}, seen)
		})
	})
}

// overlap runs the callers. The interval is longer than a stall: a list that holds permits on one node for longer than
// the interval while another node stalls has to take them anew, and nobody is told of those that it held.
func overlap(t *testing.T, through []redis.UniversalClient, seen *clusterLedger) {
	const rate, interval, callers, each = 40, 2 * time.Second, 20, 6
	seed, name := newTwinSeed(t).run, redistest.Key(t)
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // ends a test whose grant never comes
	defer cancel()
	var clients []*ratelimiter.Client
	for _, rdb := range through {
		clients = append(clients, clienttest.New(t, rdb))
		t.Cleanup(func() { _ = clients[len(clients)-1].Close() })
	}
	told, used := [6]atomic.Int64{}, [6]int64{}
	for i := range told {
		require.NoError(t, clients[0].RateLimiter(fmt.Sprint(name, i)).SetRate(ctx, ratelimiter.Rate{Permits: rate, Interval: interval}))
	}
	var running sync.WaitGroup
	began, longest := time.Now(), atomic.Int64{}
	for caller := range callers {
		c, rng := clients[caller%2], rand.New(rand.NewPCG(seed, uint64(caller)))
		running.Go(func() {
			for range each {
				var demands []ratelimiter.Demand
				of := rng.Perm(len(told))[:2+rng.IntN(3)]
				for _, i := range of {
					demands = append(demands, ratelimiter.Demand{Limiter: c.RateLimiter(fmt.Sprint(name, i)), Permits: 1 + rng.Int64N(4)})
				}
				asked := time.Now()
				if _, err := c.AcquireAll(ctx, demands...); !assert.NoError(t, err, "caller %d", caller) {
					return
				}
				longest.Store(max(longest.Load(), int64(time.Since(asked))))
				for j, i := range of {
					told[i].Add(demands[j].Permits)
				}
			}
		})
	}
	running.Wait()
	took, full := time.Since(began), int64(0)
	for i := range told {
		grants := seen.at("{" + fmt.Sprint(name, i) + "}:permits")
		used[i] = permitsIn(grants)
		require.Equal(t, told[i].Load(), used[i], "limiter %d: told of, and granted", i)
		most := fullest(grants, interval, byScore)
		require.LessOrEqual(always(t), most, int64(rate), "limiter %d: a window", i)
		full = max(full, most)
	}
	t.Logf("%d lists in %v, the longest wait %v, permits %v, the fullest window %d of %d", callers*each,
		took.Round(time.Millisecond), time.Duration(longest.Load()).Round(time.Millisecond), used, full, rate)
	require.Greater(t, full, int64(rate/2), "they compete")
}
