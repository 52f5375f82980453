// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/redis/go-redis/v9"
)

// A Server is a redis-server or valkey-server process that belongs to one test. It listens on its own loopback port,
// persists nothing unless its arguments say so, and ends with the test.
//
// Start it outside of synctest bubbles; its methods can then be called in a bubble as well. They wait in real time,
// never in the bubble's. A Server is safe for concurrent use.
type Server struct {
	bin  string
	dir  string
	args []string

	mu   sync.Mutex // held by one job at a time
	jobs chan func() error
	errs chan error
	port int
	proc *process // nil when not running
}

// Start starts a server of the lane's kind with further arguments, as in Start(t, "--appendonly", "yes",
// "--appendfsync", "always"), and returns when it replies to PING. In the miniredis lane it skips t, as [NeedReal]
// does.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	NeedReal(t)
	s, err := NewServer(binary(t), t.TempDir(), debugging(t, args)...)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// NewServer starts the program bin on a free port, with dir as its working directory, and returns when it replies to
// PING. It is [Start] for a program that is not a test: the caller closes the server.
func NewServer(bin, dir string, args ...string) (*Server, error) {
	// Another process may take the port before the server listens on it, so NewServer tries several ports.
	s := &Server{bin: bin, dir: dir, args: args, jobs: make(chan func() error), errs: make(chan error)}
	go s.supervise()
	var err error
	for range 5 {
		if err = s.do(func() error { s.port = FreePort(); return s.boot() }); err == nil {
			return s, nil
		}
	}
	close(s.jobs)
	return nil, err
}

// supervise runs the jobs that start and end processes. It does so outside of any bubble, and on one thread for the
// server's whole life, because the kernel is told to kill the server when the thread that started it ends.
func (s *Server) supervise() {
	runtime.LockOSThread()
	for job := range s.jobs {
		s.errs <- job()
	}
}

func (s *Server) do(job func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs <- job
	return <-s.errs
}

// boot runs in the supervisor.
func (s *Server) boot() error {
	args := []string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}
	p, err := startProcess(s.bin, append(args, s.args...), s.addr())
	s.proc = p
	return err
}

// halt runs in the supervisor.
func (s *Server) halt(sig os.Signal) error {
	if s.proc == nil {
		return nil
	}
	p := s.proc
	s.proc = nil
	return p.end(sig)
}

// Close kills the server for good. It may be called once, and not for a server of [Start].
func (s *Server) Close() {
	_ = s.do(func() error { return s.halt(os.Kill) })
	close(s.jobs)
}

func (s *Server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Addr returns the server's address, 127.0.0.1 and a port. It stays the same when the server restarts.
func (s *Server) Addr() string { return s.addr() }

// Client returns a client of the server, which is closed when t ends. If it is called in a bubble, the client belongs
// to the bubble.
func (s *Server) Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := options(s.Addr())
	o.PoolSize = embedredis.BubblePoolSize
	return newClient(t, o, opts)
}

// Kill ends the server by SIGKILL, as a crash would, and returns when it is gone. It does nothing if the server is
// not running.
func (s *Server) Kill() { s.must(func() error { return s.halt(os.Kill) }) }

// Stop ends the server by SIGTERM, as an operator would, and returns when it
// is gone.
func (s *Server) Stop() { s.must(func() error { return s.halt(terminate) }) }

// Restart starts the server again, on the same port, in the same directory and with the same arguments. It kills the
// server first if it is running. It returns when the server replies to PING, after it has loaded what it persisted.
func (s *Server) Restart() {
	s.must(func() error {
		if err := s.halt(os.Kill); err != nil {
			return err
		}
		return s.boot()
	})
}

// Pause freezes the server by SIGSTOP: connections stay open and get no replies, as on a machine that hangs.
func (s *Server) Pause() { s.must(func() error { return s.proc.pause() }) }

// Resume lets a paused server continue. It then replies to the requests that it has got.
func (s *Server) Resume() { s.must(func() error { return s.proc.resume() }) }

// must runs a job, and panics if it fails, because no test makes sense after that.
func (s *Server) must(job func() error) {
	if err := s.do(job); err != nil {
		panic(fmt.Sprintf("redistest: %v", err))
	}
}
