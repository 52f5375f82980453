package compat_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A gate is a TCP proxy in front of a Redis that can be shut, so that after a restart nobody calls
// before the ledger listens.
type gate struct {
	addr, target string

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

func startGate(t testing.TB, target string) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{addr: listener.Addr().String(), target: target, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { g.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		g.shut()
		serving.Wait()
	})
	return g
}

func (g *gate) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", g.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !g.enter(client) {
		return
	}
	defer g.leave(client)
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
}

func (g *gate) enter(client net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.conns[client] = true
	}
	return !g.closed
}

func (g *gate) leave(client net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, client)
}

// shut breaks all connections; new ones are accepted and closed.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for conn := range g.conns {
		_ = conn.Close()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}
