// SPDX-License-Identifier: Apache-2.0

// Package embedredis runs a Redis inside this process, for rrl, which works out on it what a change of a limiter would do,
// and for package ratelimitertest. The server is miniredis on a loopback port, with TTLs that run out by themselves.
//
// It is not meant for anything else: it keeps its data in memory and knows only the commands that
// miniredis knows. Importers of the root package do not link it.
package embedredis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Server is an embedded Redis. Its TIME command returns the time of this process, and its TTLs follow
// that clock. A Server is safe for concurrent use.
type Server struct {
	mini  *miniredis.Miniredis
	addr  string
	piped bool

	mu     sync.Mutex // of the pipes: miniredis panics if one comes while it closes
	closed bool
}

// Start starts a Server on a free port of 127.0.0.1. The caller must close it.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	// By default the keys of miniredis do not expire. With ClockTTL they do so at the next command;
	// a ticker that calls FastForward would be late by up to its period.
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	m.Server().SetPreHook((&guard{digests: map[string]string{}}).before)
	return &Server{mini: m, addr: m.Addr()}, nil
}

// InBubble returns a Server that listens nowhere and is reached by pipes, so that it can live in a bubble of [testing/synctest]
// and go by its time. The caller must close it.
func InBubble() *Server {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	return &Server{mini: m, addr: "127.0.0.1:6379", piped: true} // never dialled; a name would be looked up, once in the process
}

// Addr returns the address on which s listens or, after Close, has listened: 127.0.0.1 and a port.
func (s *Server) Addr() string { return s.addr }

// NewClient returns a new client of s. The caller must close it.
func (s *Server) NewClient() *redis.Client { return redis.NewClient(s.Options()) }

// BubblePoolSize exceeds the number of goroutines of any test. A go-redis pool that has to wait takes a timer from a
// sync.Pool shared by all clients of the process, and a timer of another bubble ends the process.
const BubblePoolSize = 4096

// Options returns the options of a client of s.
func (s *Server) Options() *redis.Options {
	o := &redis.Options{
		Addr: s.Addr(),
		// miniredis knows neither CLIENT SETINFO nor CLIENT MAINT_NOTIFICATIONS.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.piped {
		o.PoolSize = BubblePoolSize
		o.Dialer = func(context.Context, string, string) (net.Conn, error) {
			c, err := s.dial()
			if err != nil {
				return nil, err
			}
			return &buffered{Conn: c}, nil
		}
	}
	return o
}

func (s *Server) dial() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	return s.mini.Dial()
}

// Close closes the server and its connections and drops its data. Further calls do nothing.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.mini.Close()
}

// SetTime stops the clock of s at t. TIME and the TTLs follow the last call of SetTime from then on,
// and no longer the clock of this process. Setting the clock back does not lengthen any TTL.
func (s *Server) SetTime(t time.Time) { s.mini.SetTime(t) }
