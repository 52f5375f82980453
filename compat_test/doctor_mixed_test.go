// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// mixedVersions are three versions of Redisson that read each other's members.
var mixedVersions = []string{"3.34.1", "3.52.0", "4.7.0"}

// TestDoctorOfAMixedRedis has three Redisson versions and two Go processes use the same limiters of one server, and
// runs rrl doctor while they do and afterwards. It has nothing to complain of: what it finds then would be noise to
// somebody on call.
func TestDoctorOfAMixedRedis(t *testing.T) {
	during := redistest.Cases(10, 60)
	server := redistest.Start(t, "--appendonly", "yes")
	rdb := server.Client(t)
	rrl := filepath.Join(t.TempDir(), "rrl")
	out, err := exec.Command("go", "build", "-o", rrl, "../cmd/rrl").CombinedOutput()
	require.NoError(t, err, "%s", out)

	client := clienttest.New(t, rdb)
	defer client.Close()
	limiters := map[string]ratelimiter.Rate{
		"orders:create": {Permits: 50, Interval: time.Second},
		"mail":          {Permits: 40, Interval: 5 * time.Second, KeepAlive: time.Minute},
		"export":        {Permits: 2000, Interval: 10 * time.Second},
		"users":         {Type: ratelimiter.PerClient, Permits: 10, Interval: time.Second},
		"seldom":        {Permits: 5, Interval: time.Hour},
	}
	var names []string
	for name, rate := range limiters {
		require.NoError(t, client.RateLimiter(name).SetRate(t.Context(), rate))
		names = append(names, name)
	}
	var java []*pending
	var peers []*peer
	for _, v := range allVersions {
		for _, name := range mixedVersions {
			if v.name == name {
				peers = append(peers, startPeer(t, v, server.Addr()))
			}
		}
	}
	require.Len(t, peers, len(mixedVersions))
	var workers []*worker
	for range 2 {
		workers = append(workers, startWorker(t, "soak", &soakPlan{Addr: server.Addr(), Limiters: names, Mix: []int64{1, 1, 3},
			Modes: []string{"try", "wait:200ms"}, Pause: 5 * time.Millisecond, During: time.Duration(during) * time.Second}))
	}
	for _, w := range workers {
		w.begin()
	}
	for _, p := range peers {
		for _, name := range names {
			java = append(java, p.begin("hammer", name, 2, time.Duration(during)*time.Second, "1,1,3", "wait:200", 5))
		}
	}
	doctor := func(when string, args ...string) {
		t.Helper()
		cmd := exec.Command(rrl, append([]string{"doctor", "--redis", "redis://" + server.Addr()}, args...)...)
		out, err := cmd.CombinedOutput()
		t.Logf("rrl doctor %s, %s:\n%s", strings.Join(args, " "), when, out)
		if err != nil {
			t.Errorf("%s: rrl doctor %v: %v", when, args, err)
		}
	}
	for i := range max(1, during/10) {
		time.Sleep(7 * time.Second)
		if i == 0 {
			for name := range limiters {
				doctor("in use", name)
			}
		}
		doctor("in use")
	}
	for _, call := range java {
		redistest.Must(call.wait(time.Duration(during)*time.Second + callLimit))(t)
	}
	for _, w := range workers {
		tallies := map[string]*soakTally{}
		require.NoError(t, w.result(&tallies))
		for name, tally := range tallies {
			require.Empty(t, tally.Errors, name)
			require.NotZero(t, tally.Granted+tally.Rejected, name)
		}
	}
	doctor("afterwards")
	for name := range limiters {
		doctor("afterwards", name)
	}
}
