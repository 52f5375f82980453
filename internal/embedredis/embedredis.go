// SPDX-License-Identifier: Apache-2.0

// Package embedredis runs a Redis inside this process, so that the demos and the examples need nothing
// but Go. The server is miniredis on a loopback port, with TTLs that run out by themselves.
//
// It is not meant for anything else: it keeps its data in memory and knows only the commands that
// miniredis knows. Importers of the root package do not link it.
package embedredis

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Server is an embedded Redis. Its TIME command returns the time of this process, and its TTLs follow
// that clock. A Server is safe for concurrent use.
type Server struct {
	mini *miniredis.Miniredis
	addr string
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

// Addr returns the address on which s listens or, after Close, has listened: 127.0.0.1 and a port.
func (s *Server) Addr() string { return s.addr }

// NewClient returns a new client of s. The caller must close it.
func (s *Server) NewClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(),
		// miniredis knows neither CLIENT SETINFO nor CLIENT MAINT_NOTIFICATIONS.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Close closes the server and its connections and drops its data. Further calls do nothing.
func (s *Server) Close() { s.mini.Close() }
