// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestCommandsRunAsTheyStand checks the commands that a page gives to copy: of a PER_CLIENT limiter only a client can be watched, and
// a name may look like a flag.
func TestCommandsRunAsTheyStand(t *testing.T) {
	require.Equal(t, []string{"rrl inspect --members -- -a", "rrl watch -- -a", "rrl peek -- -a 1", "rrl doctor -- -a"}, commands("-a", "", false))
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	of := " --redis redis://" + rdb.Options().Addr + "/0 "
	limiter(t, rdb, name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour}, 1)
	p := s.get("limiter?name=" + name)
	require.Contains(t, p.body, "<code>rrl inspect"+of+name+" --clients</code>")
	require.NotContains(t, p.body, "<code>rrl watch")
	require.Contains(t, s.get("limiter?name="+name+"&client=c").body, "<code>rrl watch"+of+name+" --client c</code>")
}
