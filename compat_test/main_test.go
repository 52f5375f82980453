// Package compat_test puts real Redisson, driven by the Java peer below java/, and this
// library on one Redis and compares what each does with what the other left there. Guava's limiter, of
// which limit has a shared form, is asked the same as ours below java/guava.
//
// Before the tests, prepare.sh fetches the jars and compiles the peer. Where it found no
// Java the tests are skipped, and fail instead when CI=true.
package compat_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

func TestMain(m *testing.M) {
	work() // does not return in a process that a test started
	flag.Parse()
	if os.Getenv("RATELIMITER_LANE") == "" {
		// Redisson needs a real server. RATELIMITER_LANE=valkey judges on Valkey.
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
	redistest.Main(m) // the fleet's JVMs end with their stdin, which is ours
}

func prepared() (err error) {
	if _, err := exec.LookPath("java"); err != nil {
		return err
	}
	allVersions, err = loadVersions()
	return err
}

// fleet holds one peer a version, started when first asked for, on the server that the tests
// share. Tests that use it use keys of their own.
var fleet = &shared{peers: map[string]*peer{}}

type shared struct {
	mu    sync.Mutex
	peers map[string]*peer
}

func (f *shared) peer(t testing.TB, v version) *peer {
	t.Helper()
	addr := redistest.Client(t).Options().Addr
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.peers[v.name]
	if p == nil || p.ended() {
		var err error
		p, err = newPeer(v, addr)
		require.NoError(t, err)
		f.peers[v.name] = p
	}
	return p
}
