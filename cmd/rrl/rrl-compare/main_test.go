// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
