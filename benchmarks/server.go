// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A server is a redis-server on a free loopback port that persists nothing. startServer starts it with further arguments.
type server struct {
	*redistest.Server
	dir string
}

func startServer(program string, args ...string) (*server, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("%w: install redis-server", err)
	}
	dir, err := os.MkdirTemp("", "ratelimiter-bench")
	if err != nil {
		return nil, err
	}
	s, err := redistest.NewServer(path, dir, append(args, "--logfile", "redis.log")...)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &server{s, dir}, nil
}

func (s *server) stop() {
	s.Close()
	_ = os.RemoveAll(s.dir)
}

// newClient returns the client for a Go contestant. It has the defaults of go-redis, except for long timeouts, since
// a script that is sent again after a timeout could grant twice, and except for the commands at connect that older
// servers do not know.
func newClient(addr string, pool int) *redis.Client {
	return redis.NewClient(clientOptions(addr, pool))
}

func clientOptions(addr string, pool int) *redis.Options {
	return &redis.Options{
		Addr: addr, PoolSize: pool, ReadTimeout: time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
