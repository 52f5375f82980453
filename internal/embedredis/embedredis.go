// Package embedredis is a Redis inside this process, for the demos and the examples: they run on a
// machine that has nothing but Go. It is miniredis on a loopback port, told to let its TTLs run.
//
// It is no server for anything else: it holds what one process tells it, in memory, and knows the
// commands that miniredis knows. Importers of the root package do not get it.
package embedredis

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Server is one embedded Redis. Its TIME is the clock of this process and its TTLs follow it. Its
// methods are safe for concurrent use.
type Server struct {
	mini *miniredis.Miniredis
	addr string
}

// Start starts a Server on a free port of 127.0.0.1. Who starts it closes it.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	// Keys of miniredis do not expire by themselves. Its own clock does it at each command that
	// comes in; a ticker calling FastForward would be late by up to its period.
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	m.Server().SetPreHook((&guard{digests: map[string]string{}}).before)
	return &Server{mini: m, addr: m.Addr()}, nil
}

// Addr is where it listens, or has listened: 127.0.0.1 and a port.
func (s *Server) Addr() string { return s.addr }

// NewClient is a client of it, the caller's to close.
func (s *Server) NewClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(),
		// Both are commands that miniredis does not know.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Close ends it and what it holds, and every connection. Closing twice is closing once.
func (s *Server) Close() { s.mini.Close() }
