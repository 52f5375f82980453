// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/doctor"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestCommandsRunAsTheyStand checks the commands that a page gives to copy: of a PER_CLIENT limiter only a client can be watched, and
// a name may look like a flag.
func TestCommandsRunAsTheyStand(t *testing.T) {
	const at = " --redis redis://h:1/0 --user default"
	require.Equal(t, []doctor.Cmd{"rrl inspect" + at + " --members -- -a", "rrl watch" + at + " -- -a", "rrl peek" + at + " -- -a 1", "rrl doctor" + at + " -- -a"},
		commands(doctor.Target{Addrs: []string{"h:1"}}, "-a", "", false))
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	of := " --redis redis://" + rdb.Options().Addr + "/0 --user default"
	limiter(t, rdb, name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour}, 1)
	p := s.get("limiter?name=" + name)
	require.Contains(t, p.body, "<code>rrl inspect "+name+of+" --clients</code>")
	require.NotContains(t, p.body, "<code>rrl watch")
	require.Contains(t, s.get("limiter?name="+name+"&client=c").body, "<code>rrl watch "+name+of+" --client c</code>")
}
