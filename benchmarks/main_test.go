// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" { // started by a test, as run starts itself
		if err := work(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv("RATELIMITER_LANE") == "" {
		_ = os.Setenv("RATELIMITER_LANE", "redis") // INFO, SLOWLOG and the scripts of others need a real server
	}
	redistest.Main(m)
}

// capturedScript returns Redisson's script, taken from the wire once in each process.
var capturedScript = sync.OnceValues(func() (string, error) {
	if err := javaReady(newestRedisson); err != nil {
		return "", err
	}
	return captureScript(context.Background(), "redis-server")
})

// script returns Redisson's script. Where Java is not prepared it logs a line and returns "", and under CI it fails.
func script(tb testing.TB) string {
	tb.Helper()
	if err := javaReady(newestRedisson); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal(err)
		}
		tb.Logf("without the baseline: %v", err)
		return ""
	}
	text := redistest.Must(capturedScript())(tb)
	return text
}

// testBench returns a bench on a server of the test's own, which its cells may flush.
func testBench(tb testing.TB) *bench {
	tb.Helper()
	started := redistest.Start(tb)
	addr := started.Addr()
	list := redistest.Must(goContestants(addr, 0, script(tb)))(tb)
	b := &bench{options: options{repeats: 1, server: "redis-server"}, server: &server{Server: started}, rdb: newClient(addr, 0), contestants: list, results: results{}}
	tb.Cleanup(func() {
		for _, c := range list {
			require.NoError(tb, c.close())
		}
		require.NoError(tb, b.rdb.Close())
	})
	return b
}

// with returns the contestant of that key.
func (b *bench) with(tb testing.TB, key string) contestant {
	tb.Helper()
	for _, c := range b.contestants {
		if c.about().key == key {
			return c
		}
	}
	tb.Fatalf("there is no contestant %q", key)
	return nil
}
