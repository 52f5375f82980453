// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"os"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// shared holds the servers that the tests of one process share. They start at first use, and Main stops them.
var shared struct {
	sync.Mutex
	real *Server
	mini *miniredis.Miniredis
}

// Main runs the tests of a package, stops the servers that they shared, and exits. It is the whole body of a
// package's TestMain:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// The functions last remove what else the tests shared. On Linux a shared server ends with the test process even without
// Main, and after a panic or a SIGKILL.
func Main(m *testing.M, last ...func()) {
	Lane() // panics at a wrong name before any test has passed
	code := m.Run()
	for _, f := range last {
		f()
	}
	shared.Lock()
	if shared.real != nil {
		shared.real.Close()
	}
	if shared.mini != nil {
		shared.mini.Close()
	}
	shared.Unlock()
	os.Exit(code)
}

// Client returns a client of the lane's server in real time, for use outside of bubbles. The tests of the process
// share the server, so they use the names that [Key] returns. TTLs run, in the miniredis lane as well. The client is
// closed when t ends.
func Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	if Lane() != miniLane {
		return newClient(t, options(sharedServer(t).Addr()), opts)
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.mini == nil {
		m, err := miniredis.Run()
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		m.ClockTTL(true)
		shared.mini = m
	}
	return newClient(t, options(shared.mini.Addr()), opts)
}

// sharedServer returns the process's real server. The caller must not be in a bubble, which would wait for the
// server's goroutines forever.
func sharedServer(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.real == nil {
		s, err := NewServer(binary(t), os.TempDir()) // it writes no file
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		shared.real = s
	}
	return shared.real
}
