// SPDX-License-Identifier: Apache-2.0

package grpclimit

import (
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

func TestAPI(t *testing.T) { redistest.API(t) }

func TestMain(m *testing.M) { redistest.Main(m) }
