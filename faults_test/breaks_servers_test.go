// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// timeouts are the ReadTimeouts of uses, which the time until an outage is known does not depend on.
var timeouts = []time.Duration{500 * time.Millisecond, time.Second, 3 * time.Second, 4 * time.Second}

// usings makes the uses of b, and the client of go-redis alone.
func (b *breakage) usings(f *fault, client func(kind string, readTimeout time.Duration) redis.UniversalClient) (xs []*using, alone redis.UniversalClient) {
	for i, u := range uses[b.id] {
		xs = append(xs, newUsing(f, u, client(u.client, timeouts[i%len(timeouts)])))
	}
	alone = client(xs[0].client, 3*time.Second)
	f.Cleanup(func() { _ = alone.Close() })
	return xs, alone
}

// onServer has all uses meet what happens to one server.
func onServer(lasts time.Duration, how func(f *fault, s *redistest.Server) (begin, end func())) func(f *fault, b *breakage) {
	return func(f *fault, b *breakage) {
		s := &site{single: redistest.Start(f, "--lua-time-limit", "20", "--maxclients", "4000")}
		xs, alone := b.usings(f, func(kind string, d time.Duration) redis.UniversalClient { return s.client(kind, nil, d) })
		begin, end := how(f, s.single)
		b.meet(f, xs, alone, lasts, begin, func() time.Time { end(); return time.Now() })
	}
}

func busy(f *fault, s *redistest.Server) (begin, end func()) {
	script := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
	f.Cleanup(func() { _ = script.Close() })
	rdb := admin(f, s)
	do(f, rdb, "PING")
	return func() { go script.Eval(context.Background(), "while true do end", nil) }, func() {
		f.soon("the script ends", func() bool { return rdb.ScriptKill(context.Background()).Err() == nil })
	}
}

// crowded has others take all slots for clients.
func crowded(f *fault, s *redistest.Server) (begin, end func()) {
	rdb := admin(f, s)
	do(f, rdb, "PING")
	return func() { // of this connection, which stays
			do(f, rdb, "CONFIG", "SET", "maxclients", 1)
			do(f, rdb, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		}, func() {
			do(f, rdb, "CONFIG", "SET", "maxclients", 4000)
		}
}

// rotated has the server want another password than callers have.
func rotated(f *fault, b *breakage) {
	s := redistest.Start(f, "--requirepass", "old")
	client := func(_ string, d time.Duration) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "old", PoolSize: poolSize, ReadTimeout: d})
	}
	xs, alone := b.usings(f, client)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "old", PoolSize: 1, MaxRetries: -1})
	f.Cleanup(func() { _ = rdb.Close() })
	do(f, rdb, "PING")
	b.meet(f, xs, alone, 2*time.Second, func() {
		do(f, rdb, "CONFIG", "SET", "requirepass", "next")
		do(f, rdb, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	}, func() time.Time {
		do(f, rdb, "CONFIG", "SET", "requirepass", "old")
		return time.Now()
	})
}

// protected has the server want a password where callers have none.
func protected(f *fault, s *redistest.Server) (begin, end func()) {
	rdb := admin(f, s)
	do(f, rdb, "PING")
	return func() {
			do(f, rdb, "CONFIG", "SET", "requirepass", "next")
			do(f, rdb, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		}, func() {
			do(f, rdb, "CONFIG", "SET", "requirepass", "")
		}
}

// loads restarts a server that takes some seconds to load what it has, and meanwhile replies about each 10 ms, as a server
// does that loads its data at 200 MB/s.
func loads(f *fault, b *breakage) {
	redistest.Since(f, 7, 0, "loading-process-events-interval-bytes")
	s := &site{single: redistest.Start(f, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no")}
	xs, alone := b.usings(f, func(kind string, d time.Duration) redis.UniversalClient { return s.client(kind, nil, d) })
	rdb := admin(f, s.single)
	ctx := context.Background()
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 3000 {
			p.Set(ctx, fmt.Sprint("much", i), strings.Repeat("x", 100), 0)
		}
		return nil
	})
	require.NoError(f, err)
	do(f, rdb, "SAVE")
	restarted := make(chan struct{})
	b.meet(f, xs, alone, 0, func() {
		s.single.Kill()
		go func() { s.single.Restart(); close(restarted) }()
	}, func() time.Time { <-restarted; return time.Now() })
}

// drops kills a server with TLS.
func drops(f *fault, b *breakage) {
	cert := redistest.NewCertificate(f, nil)
	port := fmt.Sprint(redistest.FreePort())
	server := redistest.Start(f, "--tls-port", port, "--tls-cert-file", cert.CertFile, "--tls-key-file", cert.KeyFile,
		"--tls-ca-cert-file", cert.CertFile, "--tls-auth-clients", "no")
	roots := x509.NewCertPool()
	roots.AddCert(cert.Leaf)
	xs, alone := b.usings(f, func(_ string, d time.Duration) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, TLSConfig: &tls.Config{RootCAs: roots}, PoolSize: poolSize, ReadTimeout: d})
	})
	b.meet(f, xs, alone, 3*time.Second, server.Kill, func() time.Time { server.Restart(); return time.Now() })
}

// slowDials starts processes whose dials take their time, with 2,000 callers each.
func slowDials(f *fault, b *breakage) {
	const crowd = 2000
	n := &figures{}
	f.figures = n
	server := redistest.Start(f)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(time.Second + rand.N(2*time.Second))
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	var xs []*using
	require.NoError(f, ratelimiterOf(f, admin(f, server)).SetRate(context.Background(), rate(ample, time.Hour)))
	begin := time.Now()
	alone := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: dial})
	f.Cleanup(func() { _ = alone.Close() })
	var all sync.WaitGroup
	for _, policy := range policyNames { // each is a process
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: dial})
		for _, u := range uses[b.id] {
			u.policy, u.time = policy, 10*time.Second
			x := newUsing(f, u, rdb)
			xs = append(xs, x)
			for range crowd/len(kinds) + 1 {
				all.Go(func() { x.one(0) })
			}
		}
	}
	all.Go(func() {
		for plainly(alone) != nil {
		}
		n.plain = time.Since(begin)
	})
	all.Wait()
	for _, x := range xs {
		n.uses++
		n.add(x.sound(time.Time{}))
		first, ok := x.firstAfter(begin)
		if !ok {
			f.broken(x.use, "nobody was served: %v", x.last())
		}
		n.first = max(n.first, first)
		f.late(x.use, "the first grant, beside go-redis alone", begin, first, n.plain*3/2+3*time.Second) // a dial more, by chance
	}
	f.measured("%d uses in three processes of %d callers: 0 outages, %d grants without Redis; the first grant after %v, go-redis alone after %v; %d calls had too little time of their own",
		n.uses, crowd, n.byPolicy, round(n.first), round(n.plain), n.own)
}

// fullPool has others hold all connections of each use's pool.
func fullPool(f *fault, b *breakage) {
	const size, held = 10, 3 * time.Second
	n := &figures{}
	f.figures = n
	server := redistest.Start(f)
	var xs []*using
	var others sync.WaitGroup
	for _, u := range uses[b.id] {
		u.idle = 0
		x := newUsing(f, u, redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: size}))
		x.warm()
		xs = append(xs, x)
	}
	for _, x := range xs {
		for range size {
			others.Go(func() { x.rdb.BLPop(context.Background(), held, "nothing") })
		}
	}
	time.Sleep(100 * time.Millisecond)
	for _, x := range xs {
		x.start()
	}
	others.Wait()
	back := time.Now()
	for _, x := range xs {
		f.soon(fmt.Sprint("a grant to ", x.use), func() bool { _, ok := x.firstAfter(back); return ok })
	}
	time.Sleep(300 * time.Millisecond)
	for _, x := range xs {
		x.end()
		n.uses++
		n.add(x.sound(time.Time{}))
		first, _ := x.firstAfter(back)
		n.first = max(n.first, first)
		f.late(x.use, "the first grant", back, first, b.first)
	}
	f.measured("%d uses: 0 outages, %d grants without Redis; the first grant %v after it; %d calls had too little time of their own", n.uses, n.byPolicy, round(n.first), n.own)
}

// muteSentinel has one of three Sentinels be silent.
func muteSentinel(f *fault, b *breakage) {
	n := &figures{}
	f.figures = n
	w := startSentinels(f)
	mute := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(f)
	f.Cleanup(func() { _ = mute.Close() })
	client := func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "limits", SentinelAddrs: []string{mute.Addr().String(), w.sentinels[0].Addr(), w.sentinels[1].Addr()}})
	}
	require.NoError(f, ratelimiterOf(f, admin(f, w.master)).SetRate(context.Background(), rate(ample, time.Hour)))
	alone := client()
	f.Cleanup(func() { _ = alone.Close() })
	var all sync.WaitGroup
	var mu sync.Mutex
	var pinged time.Duration
	begin := time.Now()
	all.Go(func() {
		for plainly(alone) != nil {
		}
		n.plain = time.Since(begin)
	})
	firsts := map[*using]time.Duration{}
	for _, u := range uses[b.id] {
		x := newUsing(f, u, client())
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if u.callers == 1 { // the others do not ask first
				if err := x.c.Ping(ctx); err != nil {
					f.broken(u, "Ping: %v", err)
				}
				mu.Lock()
				pinged = max(pinged, time.Since(begin))
				mu.Unlock()
			}
			x.start()
			first := x.everybody(begin)
			x.end()
			mu.Lock()
			firsts[x] = first
			mu.Unlock()
		})
	}
	all.Wait()
	for x, first := range firsts {
		n.uses++
		n.add(x.sound(time.Time{}))
		n.first = max(n.first, first)
		f.late(x.use, "the first grant, beside go-redis alone", begin, first, n.plain*3/2+100*time.Millisecond)
	}
	f.measured("%d uses: 0 outages, %d grants without Redis; Ping after at most %v, each caller served after %v, go-redis alone after %v; %d calls had too little time of their own",
		n.uses, n.byPolicy, round(pinged), round(n.first), round(n.plain), n.own)
}

func sentinelUses(f *fault, b *breakage) {
	s := newSite(f, b.clients)
	for i := range uses[b.id] {
		uses[b.id][i].idle = 40
	}
	xs, alone := b.usings(f, func(kind string, d time.Duration) redis.UniversalClient { return s.client(kind, nil, d) })
	b.meet(f, xs, alone, 0, func() { do(f, admin(f, s.watched.sentinels[0]), "SENTINEL", "FAILOVER", "limits") },
		func() time.Time { return masterAt(f, s.watched.replica) })
}

func clusterUses(f *fault, b *breakage) {
	s := newSite(f, b.clients)
	node := s.cluster.Nodes()[0]
	xs, alone := b.usings(f, func(kind string, d time.Duration) redis.UniversalClient { return s.client(kind, nil, d) })
	b.meet(f, xs, alone, 3*time.Second, node.Kill, func() time.Time { node.Restart(); return masterAt(f, node) })
}

func ringUses(f *fault, b *breakage) {
	var servers []*redistest.Server
	s := &site{shards: map[string]string{}}
	for _, name := range []string{"a", "b"} {
		server := redistest.Start(f)
		servers = append(servers, server)
		s.shards[name] = server.Addr()
	}
	xs, alone := b.usings(f, func(kind string, d time.Duration) redis.UniversalClient { return s.client(kind, nil, d) })
	require.NoError(f, plainly(alone))
	lost := servers[0]
	if admin(f, lost).Exists(context.Background(), slot+"plain").Val() == 0 {
		lost = servers[1]
	}
	b.meet(f, xs, alone, 3*time.Second, lost.Kill, func() time.Time { lost.Restart(); return time.Now() })
}

// ratelimiterOf returns the limiter of the uses.
func ratelimiterOf(f *fault, rdb redis.UniversalClient) *ratelimiter.RateLimiter {
	return clienttest.New(f, rdb).RateLimiter(slot + "uses")
}
