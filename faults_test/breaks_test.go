// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A breakage is a fault that every kind of call meets, in uses of all sorts. Its figures stand in docs/outages.md, too.
type breakage struct {
	id, fault, zh string
	clients       []string         // the kinds of redis client that can meet it
	known         time.Duration    // within which the outage is known; zero if it is none
	unless        func(u use) bool // reports for which uses there may be none
	first         time.Duration    // within which a caller is served again by Redis
	run           func(f *fault, b *breakage)
}

// Bounds of breakages.
const (
	refused = 600 * time.Millisecond  // until an outage is known if Redis refuses
	silent  = 1800 * time.Millisecond // the same if it does not reply
	over    = 1500 * time.Millisecond // until a caller is served when Redis is back
	atOnce  = 500 * time.Millisecond  // the same if connections broke and Redis was there all the time
	halfway = 1500 * time.Millisecond // the same if they do not say that they broke
)

var (
	anyClient  = clients
	oneServer  = []string{"Client"}
	byName     = []string{"Client", "Ring"}
	ofSentinel = []string{"failover client"}
)

// breaks are the breakages, in the order of the table.
var breaks []breakage

func init() {
	breaks = []breakage{
		{"idle, RST", "idle connections get a RST at their next use (idle timeout of a load balancer, NAT)", "空闲连接在下次使用时收到 RST（负载均衡的空闲超时、NAT）",
			anyClient, 0, nil, atOnce, spoils(redistest.SpoilReset)},
		{"idle, half-open", "idle connections are half-open: nothing arrives, and there is no RST (`ReadTimeout` 2 s)", "空闲连接半开：什么也到不了，也没有 RST（`ReadTimeout` 2 秒）",
			anyClient, 0, nil, halfway, spoils(redistest.SpoilSilent)},
		{"idle, cut", "a proxy cuts each connection while a call is on its way", "调用在途时，代理切断每个连接",
			anyClient, 0, nil, atOnce, spoils(redistest.SpoilReplies)},
		{"idle, READONLY", "the name of the server is pointed elsewhere; the old master stays, as a replica (READONLY)", "服务器的域名改指别处；旧主库还在，成了从库（READONLY）",
			byName, 0, nil, atOnce, renamed},
		{"uses, SIGSTOP", "Redis freezes (SIGSTOP)", "Redis 冻结（SIGSTOP）", oneServer, silent, nil, over, onServer(4*time.Second, func(f *fault, s *redistest.Server) (begin, end func()) {
			return s.Pause, s.Resume
		})},
		{"uses, kill", "Redis is killed (kill -9) and started again", "Redis 被杀（kill -9）后重启", oneServer, refused, nil, over, onServer(3*time.Second, func(f *fault, s *redistest.Server) (begin, end func()) {
			return s.Kill, s.Restart
		})},
		{"uses, LOADING", "Redis is started again and loads its data (LOADING)", "Redis 重启并加载数据（LOADING）", oneServer, refused, nil, over, loads},
		{"uses, BUSY", "a script of others runs and runs (BUSY)", "别人的脚本一直运行（BUSY）", oneServer, refused, nil, over, onServer(3*time.Second, busy)},
		{"uses, OOM", "Redis is out of memory (OOM)", "Redis 内存已满（OOM）", oneServer, refused, nil, over, onServer(3*time.Second, func(f *fault, s *redistest.Server) (begin, end func()) {
			rdb := admin(f, s)
			limit := func(bytes int) func() { return func() { do(f, rdb, "CONFIG", "SET", "maxmemory", bytes) } }
			return limit(1), limit(0)
		})},
		{"uses, max clients", "all connections are lost, and Redis accepts no further one (`maxclients`)", "连接全部断开，Redis 不再接受新连接（`maxclients`）", oneServer, refused, nil, over, onServer(3*time.Second, crowded)},
		{"uses, WRONGPASS", "a password is rotated: connections are lost, and new ones get WRONGPASS for 2 s", "密码轮换：连接断开，新连接有 2 秒得到 WRONGPASS", oneServer, refused, nil, over, rotated},
		{"uses, NOAUTH", "Redis gets a password: connections are lost, and new ones get NOAUTH for 2 s", "Redis 设了密码：连接断开，新连接有 2 秒得到 NOAUTH", oneServer, refused, nil, over, onServer(2*time.Second, protected)},
		{"uses, TLS", "a server with TLS is killed and started again", "启用 TLS 的服务器被杀后重启", oneServer, refused, nil, over, drops},
		{"uses, slow dials", "each dial takes 1–3 s, and 2,000 callers begin at once", "每次建立连接要 1–3 秒，2,000 个调用同时开始", oneServer, 0, nil, 0, slowDials},
		{"uses, full pool", "others hold all connections of the pool for 3 s (`BLPOP`)", "别人占满连接池 3 秒（`BLPOP`）", oneServer, 0, nil, atOnce, fullPool},
		{"uses, mute Sentinel", "one of three Sentinels accepts connections and never replies", "三个 Sentinel 中有一个接受连接但从不响应", ofSentinel, 0, nil, 0, muteSentinel},
		{"uses, Sentinel failover", "Sentinel: an operator orders a failover, with 40 idle connections", "Sentinel：人工切换，有 40 个空闲连接", ofSentinel, refused, nil, over, sentinelUses},
		{"uses, cluster node", "Cluster: a master without a replica is killed and started again", "Cluster：没有从库的主库被杀后重启", []string{"Cluster"}, refused, nil, over, clusterUses},
		{"uses, shard", "Ring: a shard is killed and started again", "Ring：一个分片被杀后重启", []string{"Ring"}, refused, nil, over, ringUses},
	}
	ids := make([]string, len(breaks))
	of := map[string]*breakage{}
	for i := range breaks {
		b := &breaks[i]
		switch b.id {
		case "uses, OOM": // Redis replies to what does not write
			b.unless = func(u use) bool { return u.call.looks }
		case "uses, Sentinel failover": // it may be quick
			b.unless = func(use) bool { return true }
		}
		ids[i], of[b.id] = b.id, b
		rows = append(rows, row{b.id, b.fault + ", in 15 kinds of call", b.promise(), func(f *fault) { b.run(f, b) }})
	}
	uses = planned(ids, func(id string, u use) bool {
		return slices.Contains(of[id].clients, u.client) && (u.idle <= 12 || id != "uses, TLS") // which takes its time to connect
	})
}

// uses are those of each breakage.
var uses map[string][]use

func (b *breakage) promise() string {
	const none = "no outage, and no grant without Redis; errors only of callers whose own time is too short; "
	switch {
	case b.known == 0 && b.first == 0:
		return none + "a grant not later than 1.5 times as long as go-redis alone takes"
	case b.known == 0:
		return fmt.Sprintf(none+"each caller is served again within %v", b.first)
	}
	return fmt.Sprintf("an outage, known within %v; from then on the policy decides, and a call that does not wait takes at most 0.1 s; one event each; the first grant within %v after it", b.known, b.first)
}

// figures are what the uses of a breakage found: for docs/outages.md.
type figures struct {
	uses                         int
	known, first, plain, longest time.Duration // the largest
	own, byPolicy                int
}

// alone says how long go-redis alone took.
func (n *figures) alone(b *breakage) string {
	if enough := b.enough(); enough > 0 && n.plain >= enough {
		return fmt.Sprintf("> %v", enough)
	}
	return fmt.Sprint(round(n.plain))
}

// enough is how long a call of go-redis alone is repeated beside each use whose connections break; zero for other breakages.
func (b *breakage) enough() time.Duration {
	if b.known > 0 {
		return 0
	}
	return 3 * b.first
}

// row returns the row of a page, where none says that there was no outage.
func (n *figures) row(b *breakage, fault string, none string) string {
	known, longest, plain := none, "–", "–"
	if n.known > 0 {
		known, longest = fmt.Sprint(round(n.known)), fmt.Sprint(n.longest.Round(time.Millisecond))
	}
	if n.plain > 0 {
		plain = n.alone(b)
	}
	return fmt.Sprintf("| %s | %s | %s | %v | %s | %d |\n", fault, known, longest, round(n.first), plain, n.byPolicy)
}

// broken reports a broken promise of a use, and goes on with the others.
func (f *fault) broken(u use, format string, args ...any) {
	f.Helper()
	f.Errorf("%v: %s", u, fmt.Sprintf(format, args...))
}

// A site is servers of all kinds, and the way to them.
type site struct {
	single  *redistest.Server
	shards  map[string]string
	cluster *redistest.Cluster
	watched *watched
	addrs   []string // of the servers that callers ask
}

func newSite(f *fault, kinds []string) *site {
	s := &site{}
	for _, k := range kinds {
		switch k {
		case "Client":
			s.single = redistest.Start(f)
			s.addrs = append(s.addrs, s.single.Addr())
		case "Ring":
			s.shards = map[string]string{}
			for _, name := range []string{"a", "b"} {
				addr := redistest.Start(f).Addr()
				s.shards[name] = addr
				s.addrs = append(s.addrs, addr)
			}
		case "Cluster":
			s.cluster = redistest.StartCluster(f)
			for _, n := range s.cluster.Nodes() {
				s.addrs = append(s.addrs, n.Addr())
			}
		case "failover client":
			s.watched = startSentinels(f)
			s.addrs = append(s.addrs, s.watched.master.Addr())
		}
	}
	return s
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// proxied returns proxies before all servers, and a dialer to them.
func (s *site) proxied(f *fault) ([]*redistest.Proxy, dialer) {
	to := map[string]string{}
	var all []*redistest.Proxy
	for _, addr := range s.addrs {
		p := redistest.StartProxy(f, addr)
		to[addr] = p.Addr()
		all = append(all, p)
	}
	return all, func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, cmp.Or(to[addr], addr))
	}
}

const poolSize = 120

// client returns a redis client of a kind.
func (s *site) client(kind string, dial dialer, readTimeout time.Duration) redis.UniversalClient {
	switch kind {
	case "Ring":
		return redis.NewRing(&redis.RingOptions{Addrs: s.shards, Dialer: dial, PoolSize: poolSize, ReadTimeout: readTimeout})
	case "Cluster":
		o := &redis.ClusterOptions{Dialer: dial, PoolSize: poolSize, ReadTimeout: readTimeout}
		for _, n := range s.cluster.Nodes() {
			o.Addrs = append(o.Addrs, n.Addr())
		}
		return redis.NewClusterClient(o)
	case "failover client":
		o := &redis.FailoverOptions{MasterName: "limits", Dialer: dial, PoolSize: poolSize, ReadTimeout: readTimeout}
		for _, n := range s.watched.sentinels {
			o.SentinelAddrs = append(o.SentinelAddrs, n.Addr())
		}
		return redis.NewFailoverClient(o)
	}
	return redis.NewClient(&redis.Options{Addr: s.single.Addr(), Dialer: dial, PoolSize: poolSize, ReadTimeout: readTimeout})
}

// plainly is a call of go-redis alone.
func plainly(rdb redis.UniversalClient) error {
	return rdb.Set(context.Background(), slot+"plain", 1, time.Hour).Err()
}

// spoils breaks the idle connections of each use.
func spoils(how redistest.Spoil) func(f *fault, b *breakage) {
	return func(f *fault, b *breakage) {
		s := newSite(f, b.clients)
		together := 1
		if how == redistest.SpoilSilent {
			together = 5 // they only wait
		}
		b.each(f, together, func(u use) (rdb, alone redis.UniversalClient, breaks func()) {
			proxies, dial := s.proxied(f)
			return s.client(u.client, dial, 2*time.Second), s.client(u.client, dial, 2*time.Second), func() {
				for _, p := range proxies {
					p.Spoil(how)
				}
			}
		})
	}
}

// renamed makes a server a replica, and points its name at another, in each use.
func renamed(f *fault, b *breakage) {
	old, next := newSite(f, b.clients), newSite(f, b.clients)
	// Each is a replica of nobody, who does not reply: it serves what it has, and refuses writes.
	role := func(s *site, args ...any) {
		for _, addr := range s.addrs {
			rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
			do(f, rdb, append([]any{"REPLICAOF"}, args...)...)
			_ = rdb.Close()
		}
	}
	b.each(f, 1, func(u use) (rdb, alone redis.UniversalClient, breaks func()) {
		role(old, "NO", "ONE")
		proxies, dial := old.proxied(f)
		rdb, alone = old.client(u.client, dial, 2*time.Second), old.client(u.client, dial, 2*time.Second)
		return rdb, alone, func() {
			for i, p := range proxies {
				p.Redirect(next.addrs[i])
			}
			role(old, "127.0.0.1", "1")
		}
	})
}

// each has each use meet a fault of its connections, so many at a time, and go-redis alone after it.
func (b *breakage) each(f *fault, together int, prepare func(u use) (rdb, alone redis.UniversalClient, breaks func())) {
	n := &figures{}
	f.figures = n
	var mu sync.Mutex
	var running sync.WaitGroup
	var sum, sumPlain time.Duration
	start := time.Now()
	slots := make(chan struct{}, together)
	for _, u := range uses[b.id] {
		slots <- struct{}{}
		rdb, alone, breaks := prepare(u)
		f.Cleanup(func() { _ = alone.Close() })
		x := newUsing(f, u, rdb)
		x.warm()
		require.NoError(f, plainly(alone))
		fill(f, alone, u.idle)
		running.Go(func() {
			defer func() { <-slots }()
			begin := time.Now()
			breaks()
			x.start()
			served := x.everybody(begin)
			time.Sleep(200 * time.Millisecond)
			x.end()
			begun := time.Now()
			breaks()
			plain, enough := time.Duration(0), b.enough()
			var all sync.WaitGroup
			var last sync.Mutex
			for range x.n() {
				all.Go(func() {
					for plainly(alone) != nil && time.Since(begun) < enough {
					}
					last.Lock()
					defer last.Unlock()
					plain = max(plain, time.Since(begun))
				})
			}
			all.Wait()
			_ = x.c.Close()
			_, _ = rdb.Close(), alone.Close()
			mu.Lock()
			defer mu.Unlock()
			n.uses++
			n.add(x.sound(time.Time{}))
			n.first, n.plain = max(n.first, served), max(n.plain, plain)
			f.Logf("%v: each caller is served after %v, go-redis alone after %v", x.use, round(served), round(plain))
			f.late(x.use, "until each caller is served", begin, served, b.first)
			sum, sumPlain = sum+served, sumPlain+plain
		})
	}
	running.Wait()
	mean := func(sum time.Duration) time.Duration { return sum / time.Duration(max(n.uses, 1)) }
	f.measured("%d uses: 0 outages, %d grants without Redis; each caller is served again after at most %v, with go-redis alone after %v; on average after %v and %v; %d calls had too little time of their own",
		n.uses, n.byPolicy, round(n.first), n.alone(b), round(mean(sum)), round(mean(sumPlain)), n.own)
	f.within("until each caller is served on average, beside go-redis alone", start, mean(sum), mean(sumPlain)*3/2)
}

func (n *figures) add(own, byPolicy int) { n.own, n.byPolicy = n.own+own, n.byPolicy+byPolicy }

// late reports if something took longer than its bound and what [fault.within] allows for.
func (f *fault) late(u use, what string, begin time.Time, took, bound time.Duration) {
	f.Helper()
	if allowed := f.allowed(begin, took, bound); took > allowed {
		f.broken(u, "%s: %v; the promise is %v", what, took, bound)
	}
}

// n returns how many callers there are.
func (x *using) n() int {
	if x.callers > 1 && x.use.call.crowd {
		return 40
	}
	return x.callers
}

// everybody waits until each caller has been served by Redis after t, and returns how long that took.
func (x *using) everybody(t time.Time) (took time.Duration) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		served := map[int]time.Duration{}
		for _, m := range x.since(time.Time{}) {
			if d := m.end.Sub(t); m.served() && d > 0 && (served[m.by] == 0 || d < served[m.by]) {
				served[m.by] = d
			}
		}
		if len(served) == x.n() {
			for _, d := range served {
				took = max(took, d)
			}
			return took
		}
		if time.Now().After(end) {
			x.f.broken(x.use, "after 20 s %d of %d callers have been served; the last error: %v", len(served), x.n(), x.last())
			return 20 * time.Second
		}
	}
}

func (x *using) last() (err error) {
	for _, m := range x.since(time.Time{}) {
		if m.err != nil {
			err = m.err
		}
	}
	return err
}

// sound checks the calls of a use: before an outage that is known since then, or without one, only those fail whose own time is
// over, and no policy decides. It returns how many had too little time of their own, and how many were granted by policy.
func (x *using) sound(known time.Time) (own, byPolicy int) {
	if began, _ := x.outages(); known.IsZero() && len(began) > 0 {
		x.f.broken(x.use, "an outage without one, because of %v", began[0].Err)
	}
	early := 0
	var why error
	for _, m := range x.since(time.Time{}) {
		inTime := known.IsZero() || m.end.Before(known.Add(-50*time.Millisecond)) // the event is told a moment after
		late := m.took() >= x.time*17/20                                          // a Transport keeps some of it for the request
		switch {
		case m.err != nil && !errors.Is(m.err, context.Canceled) && inTime && !late:
			early++
			why = fmt.Errorf("after %v: %w", m.took(), m.err)
		case m.err != nil && inTime, m.degraded && inTime && late && strings.HasPrefix(x.use.call.name, "inbound"):
			own++
		case m.err != nil: // rejected by the policy, or unavailable
		case m.degraded && inTime:
			byPolicy++
			why = fmt.Errorf("by policy after %v, %v before an outage is known", m.took(), known.Sub(m.end))
		case m.degraded:
			byPolicy++
			if x.policy == "FailClosed" {
				x.f.broken(x.use, "FailClosed granted")
			}
		}
	}
	if why != nil {
		x.f.broken(x.use, "%d calls failed early, or were granted by policy without an outage: %v", early, why)
	}
	return own, byPolicy
}

// meet has uses meet an outage together, which lasts so long. End returns when Redis is back.
func (b *breakage) meet(f *fault, xs []*using, alone redis.UniversalClient, lasts time.Duration, begin func(), end func() (back time.Time)) {
	n := &figures{uses: len(xs)}
	f.figures = n
	for _, x := range xs {
		x.warm()
	}
	for _, x := range xs {
		x.start()
	}
	var done atomic.Bool
	var plain sync.WaitGroup
	var mu sync.Mutex
	var successes []time.Time
	plain.Go(func() {
		for !done.Load() {
			if plainly(alone) == nil {
				mu.Lock()
				successes = append(successes, time.Now())
				mu.Unlock()
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	time.Sleep(500 * time.Millisecond)
	broke := time.Now()
	begin()
	time.Sleep(time.Until(broke.Add(lasts)))
	back := end()
	for _, x := range xs {
		f.soon(fmt.Sprint("a grant to ", x.use), func() bool { _, ok := x.firstAfter(back); return ok })
	}
	time.Sleep(700 * time.Millisecond)
	for _, x := range xs {
		x.stop.Store(true)
	}
	for _, x := range xs {
		x.end()
	}
	done.Store(true)
	plain.Wait()
	for _, at := range successes {
		if at.After(back) {
			n.plain = at.Sub(back)
			break
		}
	}
	var quickest time.Duration
	for _, x := range xs {
		first, _ := x.firstAfter(back)
		n.first = max(n.first, first)
		f.late(x.use, "the first grant", back, first, b.first)
		f.Logf("%v: first grant %v, outages %v", x.use, round(first), x.events)
		began, ended := x.outages()
		if len(began) == 0 && b.unless != nil && b.unless(x.use) {
			n.add(x.sound(time.Time{}))
			continue
		}
		if len(began) == 0 {
			f.broken(x.use, "the outage was never known")
			continue
		}
		known := began[0].Time.Sub(broke)
		n.known = max(n.known, known)
		if quickest == 0 || known < quickest {
			quickest = known
		}
		f.late(x.use, "until the outage is known", broke, known, b.known)
		if len(began) != 1 || len(ended) != 1 {
			f.broken(x.use, "%d outages began and %d ended: %v, %v", len(began), len(ended), began, ended)
		}
		n.add(x.sound(began[0].Time))
		decided, until := 0, back
		if len(ended) > 0 && ended[0].Time.Before(until) {
			until = ended[0].Time
		}
		for _, m := range x.since(began[0].Time.Add(50 * time.Millisecond)) {
			if !m.begin.Before(until) {
				continue
			}
			if m.degraded && m.err == nil {
				decided++
			}
			if x.use.call.waits && x.policy != "FailOpen" {
				continue
			}
			n.longest = max(n.longest, m.took())
			f.late(x.use, "a call in a known outage", m.begin, m.took(), 100*time.Millisecond)
			if x.policy == "FailOpen" && !x.use.call.looks && m.err != nil {
				f.broken(x.use, "FailOpen did not grant: %v", m.err)
			}
		}
		if most := int(quota.Permits) * (int(back.Sub(broke)/quota.Interval) + 1); x.policy == "LocalQuota" && decided > most {
			f.broken(x.use, "the local quota granted %d of %d", decided, most)
		}
	}
	f.measured("%d uses: known after %v to %v; from then on the longest call that does not wait took %v; first grant at most %v after it, go-redis alone %v; %d calls had too little time of their own before; %d decided by policy",
		n.uses, round(quickest), round(n.known), n.longest.Round(time.Millisecond), round(n.first), round(n.plain), n.own, n.byPolicy)
}
