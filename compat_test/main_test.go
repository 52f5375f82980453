// SPDX-License-Identifier: Apache-2.0

// Package compat_test runs real Redisson, driven by the Java peer below java/, and this library on one Redis, and
// compares what each of them does with what the other left there. It also compares Guava's limiter with our limiters
// of package limit, by a peer below java/guava.
//
// Before the tests, prepare.sh fetches the jars and compiles the peer. If it found no Java, the tests are skipped,
// and with CI=true they fail instead.
package compat_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/redistest/worker"
)

func TestMain(m *testing.M) {
	worker.Main(&worker.Load{}, &outboundPlan{}) // does not return in a process that a test started
	flag.Parse()
	if os.Getenv("RATELIMITER_LANE") == "" {
		// Redisson needs a real server. With RATELIMITER_LANE=valkey the tests run on Valkey.
		_ = os.Setenv("RATELIMITER_LANE", "redis")
	}
	if err := prepared(); err != nil {
		fmt.Fprintf(os.Stderr, "compat: real Redisson was not asked: %v\n", err)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = os.Remove(newestDiffers)
	redistest.Main(m) // the fleet's JVMs end when their stdin closes, which happens when this process ends
}

func prepared() (err error) {
	if _, err := exec.LookPath("java"); err != nil {
		return err
	}
	allVersions, err = loadVersions()
	return err
}

// fleet holds one peer for each version, started at its first use, on the server that the tests share. Tests that use
// it use their own keys.
var fleet shared

type shared struct{ peers sync.Map } // *fleetPeer by version

type fleetPeer struct {
	sync.Mutex
	*peer
}

func (f *shared) peer(t testing.TB, v version) *peer {
	t.Helper()
	addr := redistest.Client(t).Options().Addr
	entry, _ := f.peers.LoadOrStore(v.name, &fleetPeer{})
	p := entry.(*fleetPeer)
	p.Lock()
	defer p.Unlock()
	if p.peer == nil || p.ended() {
		p.peer = redistest.Must(newPeer(v, addr))(t)
	}
	return p.peer
}
