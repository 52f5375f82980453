// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary behave as rrl, for tests of signals and exit codes.
const asProgram = "RRL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	logging.Disable()
	redistest.Main(m)
}

// newDemo returns a demo over virtual time and pipes, to be run in a bubble. A real server's TIME is not virtual, so
// there the limiter uses the bubble's clock.
func newDemo(t *testing.T, rdb *redis.Client, out io.Writer) *demo {
	l := newPipes()
	d := &demo{
		store:   &store{rdb: rdb, where: "a test's Redis", name: redistest.Key(t), close: func() {}},
		rate:    ratelimiter.Rate{Type: ratelimiter.Overall, Permits: 5, Interval: 10 * time.Second},
		timeout: time.Minute,
		steps:   thePlay,
		longest: 40 * time.Second,
		view:    &plainView{out: out},
		warn:    io.Discard,
		listen:  func() (net.Listener, error) { return l, nil },
		dial:    l.dial,
	}
	if !redistest.TTLsAreVirtual() {
		d.options = append(d.options, ratelimiter.WithClientClock())
	}
	return d
}

// inDemo runs f in virtual time, with a demo and what it prints.
func inDemo(t *testing.T, f func(t *testing.T, d *demo, out *bytes.Buffer), opts ...func(*redis.Options)) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		var out bytes.Buffer
		f(t, newDemo(t, rdb, &out), &out)
	}, opts...)
}

// requireNoKeys checks that a demo has left nothing behind.
func (s *store) requireNoKeys(t *testing.T) {
	t.Helper()
	require.Empty(t, redistest.Must(s.rdb.Keys(t.Context(), "*"+s.name+"*").Result())(t), "left behind")
}

// embedded returns a client of the Redis inside the command, in real time.
func embedded(t *testing.T) *redis.Client {
	t.Helper()
	redistest.NoServer(t)
	s := redistest.Must(embedredis.Start())(t)
	t.Cleanup(s.Close)
	rdb := s.NewClient()
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// A pipes is a network for the inside of a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func lastLine(t *testing.T, out []byte) string {
	t.Helper()
	require.True(t, bytes.HasSuffix(out, []byte("\n")), "%q", out)
	lines := bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n"))
	return string(lines[len(lines)-1])
}
