package redistest

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Server is a redis-server or valkey-server process that belongs to one
// test. It listens on a loopback port of its own, persists nothing unless its
// arguments say so, and ends with the test.
//
// Start it outside of synctest bubbles; its methods then work inside, too.
// They wait on real time, never on the bubble's. A Server is safe for
// concurrent use.
type Server struct {
	bin  string
	dir  string
	args []string

	mu   sync.Mutex // one job at a time
	jobs chan func() error
	errs chan error
	port int
	proc *process // nil when not running
}

// Start starts a server of the lane's kind with further arguments, as in
// Start(t, "--appendonly", "yes", "--appendfsync", "always"), and returns when
// it answers PING. In the miniredis lane it skips t, as [NeedReal] does.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	NeedReal(t)
	s, err := NewServer(binary(t), t.TempDir(), args...)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// NewServer starts the program bin on a free port, with dir as its working
// directory, and returns when it answers PING. It is [Start] for a program
// that is no test: the caller closes the server.
func NewServer(bin, dir string, args ...string) (*Server, error) {
	// Another process may take the port between the look and the start, so it
	// tries several.
	s := &Server{bin: bin, dir: dir, args: args, jobs: make(chan func() error), errs: make(chan error)}
	go s.supervise()
	var err error
	for range 5 {
		if err = s.do(func() error { s.port = freePort(); return s.boot() }); err == nil {
			return s, nil
		}
	}
	close(s.jobs)
	return nil, err
}

// supervise runs the jobs that start and end processes, outside of any bubble
// and on one thread for the server's whole life: the kernel is asked to kill
// the server with the thread that started it.
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

// Close kills the server for good. It may be called once, and is not for
// servers of [Start].
func (s *Server) Close() {
	_ = s.do(func() error { return s.halt(os.Kill) })
	close(s.jobs)
}

func (s *Server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Addr returns the server's address, 127.0.0.1 and a port. It stays the same
// over restarts.
func (s *Server) Addr() string { return s.addr() }

// Client returns a client of the server, closed when t ends. It may be called
// in a bubble; the client then belongs to it.
func (s *Server) Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := options(s.Addr())
	o.PoolSize = bubblePoolSize
	return newClient(t, o, opts)
}

// Kill ends the server by SIGKILL, as a crash would, and returns when it is
// gone. A server that is not running stays so.
func (s *Server) Kill() { s.must(func() error { return s.halt(os.Kill) }) }

// Stop ends the server by SIGTERM, as an operator would, and returns when it
// is gone.
func (s *Server) Stop() { s.must(func() error { return s.halt(terminate) }) }

// Restart starts the server again, killing it first if it runs, on the same
// port, in the same directory and with the same arguments, and returns when
// it answers PING: whatever it persisted is then loaded.
func (s *Server) Restart() {
	s.must(func() error {
		if err := s.halt(os.Kill); err != nil {
			return err
		}
		return s.boot()
	})
}

// Pause freezes the server by SIGSTOP: connections stay open and nobody
// answers, as on a machine that hangs.
func (s *Server) Pause() { s.must(func() error { return s.proc.pause() }) }

// Resume lets a paused server go on. It then answers what it was asked.
func (s *Server) Resume() { s.must(func() error { return s.proc.resume() }) }

// must runs a job whose failure leaves no test with a meaning.
func (s *Server) must(job func() error) {
	if err := s.do(job); err != nil {
		panic(fmt.Sprintf("redistest: %v", err))
	}
}
