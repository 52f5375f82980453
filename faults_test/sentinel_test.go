// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A watched is a master with a replica and three sentinels.
type watched struct {
	f               *fault
	master, replica *redistest.Server
	sentinels       []*redistest.Server
}

// sentinelScript starts a sentinel with the arguments that redistest gives to a server.
const sentinelScript = `#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --port) port=$2 ;;
    --dir) dir=$2 ;;
    --sentinel-of) master=$2 ;;
    esac
    shift 2
done
cat >"$dir/sentinel.conf" <<EOF
port $port
bind 127.0.0.1
sentinel monitor limits 127.0.0.1 $master 2
sentinel down-after-milliseconds limits 1000
sentinel failover-timeout limits 6000
EOF
exec %s-server "$dir/sentinel.conf" --sentinel
`

func startSentinels(f *fault) *watched {
	f.Helper()
	w := &watched{f: f, master: redistest.Start(f, "--repl-diskless-sync-delay", "0")}
	_, port, err := net.SplitHostPort(w.master.Addr())
	require.NoError(f, err)
	w.replica = redistest.Start(f, "--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay", "0")
	script := filepath.Join(f.TempDir(), "sentinel")
	require.NoError(f, os.WriteFile(script, fmt.Appendf(nil, sentinelScript, redistest.Lane()), 0o700))
	rdb := admin(f, w.replica)
	f.soon("the replica is in step", func() bool {
		return strings.Contains(rdb.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	for range 3 {
		s := redistest.Must(redistest.NewServer(script, f.TempDir(), "--sentinel-of", port))(f)
		f.Cleanup(s.Close)
		w.sentinels = append(w.sentinels, s)
	}
	for _, s := range w.sentinels {
		rdb := admin(f, s)
		f.soon("the sentinels know each other", func() bool {
			info := rdb.Info(context.Background(), "sentinel").Val()
			return strings.Contains(info, "status=ok") && strings.Contains(info, "slaves=1,sentinels=3")
		})
	}
	return w
}

func (w *watched) dial() redis.UniversalClient {
	o := &redis.FailoverOptions{MasterName: "limits"}
	for _, s := range w.sentinels {
		o.SentinelAddrs = append(o.SentinelAddrs, s.Addr())
	}
	return redis.NewFailoverClient(o)
}

// deafen cuts a replica off, so that it has nothing of what is granted from now on. Redis replicates asynchronously,
// so a failover can lose as much at any time; this is the worst of it.
func deafen(f *fault, master redis.UniversalClient) {
	f.Helper()
	do(f, master, "ACL", "SETUSER", "default", "-psync", "-sync")
	do(f, master, "CLIENT", "KILL", "TYPE", "replica")
}

// masterAt waits until a server is a master that takes writes, and returns that moment.
func masterAt(f *fault, s *redistest.Server) time.Time {
	f.Helper()
	ctx, rdb := context.Background(), admin(f, s)
	f.soon("the replica takes writes", func() bool { return rdb.Set(ctx, "{06S}writable", 1, time.Second).Err() == nil })
	return time.Now()
}

// served waits until a server has granted something of a limiter itself.
func served(f *fault, s *redistest.Server, name string) {
	f.Helper()
	rdb := admin(f, s)
	_, _, set := keysOf(name)
	had := rdb.ZCard(context.Background(), set).Val()
	f.soon("the new master grants", func() bool { return rdb.ZCard(context.Background(), set).Val() > had })
}

// scarce is the rate, an hour long, of the limiter that shows what a failover forgets: it is used up before.
const scarce = 50

// used lets a fleet use up a scarce limiter while the replica hears nothing of it.
func (a *fleet) used(name string) {
	a.f.Helper()
	for range scarce {
		require.True(a.f, redistest.Must(a.clients[0].RateLimiter(name).Allow(context.Background(), 1))(a.f).Granted)
	}
}

// firstGrant is how soon after Redis is back a caller is granted something.
const firstGrant = 2500 * time.Millisecond

// failover replaces a master, to which it does what, by its replica, which lacks every grant of the scarce limiter. The
// limiter that is not scarce shows when callers are served again. Both are in one slot, of a cluster's first master.
func failover(f *fault, dial func() redis.UniversalClient, master, replica *redistest.Server, what, then func()) {
	const scarceName, ampleName = "{06S}scarce", "{06S}ample"
	c := &crowd{fleet: newFleet(f, dial), name: ampleName}
	c.set(scarceName, rate(scarce, time.Hour))
	c.set(ampleName, rate(ample, time.Hour))
	rdb := admin(f, master)
	do(f, rdb, "WAIT", 1, 1000)
	deafen(f, rdb)
	c.used(scarceName)
	scarceTold := c.tries(scarceName, 2, time.Millisecond)
	c.start()
	time.Sleep(500 * time.Millisecond)
	begin := time.Now()
	what()
	back := masterAt(f, replica)
	first := f.grants(c.waited, back)
	served(f, replica, ampleName)
	time.Sleep(time.Second)
	then()
	c.end()
	granted := scarce + scarceTold.Told().Permits()
	f.measured("%d granted of %d in the hour; the replica takes writes after %v, first grant %v later; %d non-blocking calls got ErrUnavailable",
		granted, scarce, round(back.Sub(begin)), round(first), errs(c.tried))
	require.Greater(f, granted, int64(scarce), "the replica has forgotten, or the row shows nothing")
	require.LessOrEqual(f, granted, int64(2*scarce))
	requireTyped(f, scarceTold, false)
	c.requireTyped()
	f.within("the first grant", back, first, firstGrant)
}

// thawed lets a frozen server go on when it has been replaced: it then still takes itself for the master until others tell it.
func thawed(s *redistest.Server) func() {
	return func() {
		s.Resume()
		time.Sleep(3 * time.Second)
	}
}

func sentinelKill(f *fault) {
	w := startSentinels(f)
	failover(f, w.dial, w.master, w.replica, w.master.Kill, func() {})
}

func sentinelStop(f *fault) {
	w := startSentinels(f)
	failover(f, w.dial, w.master, w.replica, w.master.Pause, thawed(w.master))
}

func sentinelManual(f *fault) {
	w := startSentinels(f)
	failover(f, w.dial, w.master, w.replica, func() { do(f, admin(f, w.sentinels[0]), "SENTINEL", "FAILOVER", "limits") }, func() {})
}

// minReplicas takes the only replica away from a master that wants one.
func minReplicas(f *fault) {
	master := redistest.Start(f, "--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
	_, port, err := net.SplitHostPort(master.Addr())
	require.NoError(f, err)
	replica := redistest.Start(f, "--replicaof", "127.0.0.1", port)
	rdb := admin(f, master)
	writable := func() time.Time {
		f.soon("the master takes writes", func() bool { return rdb.Set(context.Background(), "x", 1, 0).Err() == nil })
		return time.Now()
	}
	writable()
	c := newCrowd(f, at(master.Addr()), "ample")
	replica.Kill()
	f.soon("NOREPLICAS", func() bool { return redis.HasErrorPrefix(rdb.Set(context.Background(), "x", 1, 0).Err(), "NOREPLICAS") })
	rejected := time.Now()
	time.Sleep(3 * time.Second)
	before, meanwhile := time.Now(), c.since(rejected)
	replica.Restart()
	back := writable()
	first := f.grants(c.waited, back)
	time.Sleep(500 * time.Millisecond)
	c.end()
	f.measured("%d granted in %v of NOREPLICAS; first grant %v after the replica; drift 0 of %d; %d non-blocking calls got ErrUnavailable",
		meanwhile, round(before.Sub(rejected)), round(first), c.told(), errs(c.tried))
	require.Zero(f, meanwhile)
	c.requireTyped()
	c.requireNoDrift(rdb)
	f.within("the first grant", back, first, firstGrant)
}
