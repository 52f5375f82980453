// SPDX-License-Identifier: Apache-2.0

package ratelimitertest

import (
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// TestAPI compares the exported names with testdata/api.txt, which `make api` writes.
func TestAPI(t *testing.T) { redistest.API(t) }
