// SPDX-License-Identifier: Apache-2.0

// Package faults_test makes the faults that a limiter meets in production, on servers that it starts and ends, and
// holds what the callers of several Clients are told against what lies in Redis. Its rows state what is promised;
// docs/reliability.md has them with what was measured. It runs as `make test-faults`.
package faults_test

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/redistest/worker"
)

func TestMain(m *testing.M) {
	worker.Main(&worker.Load{}) // does not return in a process that a test started
	flag.Parse()
	if os.Getenv("RATELIMITER_LANE") == "" {
		// Nothing here means anything without a real server. With RATELIMITER_LANE=valkey the rows run on Valkey.
		_ = os.Setenv("RATELIMITER_LANE", "redis")
	}
	redis.SetLogger(silence{}) // it writes a line for each connection that fails
	redistest.Main(m)
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
