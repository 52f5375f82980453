// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9/logging"
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
