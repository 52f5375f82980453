// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/dinggate"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

const (
	apiPath   = "/topapi/v2/user/get"
	apiRate   = 20              // a second, for each application and API
	banLength = 5 * time.Second // the platform's 5 minutes, scaled

	// onItsWay is the time within which a call reaches the gateway if its permit was granted before the grants
	// stopped, on a machine that may stall for a while.
	onItsWay = 2 * time.Second

	goProcesses  = 8
	goGoroutines = 4
	javaThreads  = 2
)

// TestOutbound checks the DingTalk profile with real processes. Eight Go processes with the profile and a JVM with
// Redisson 4.7.0 call one API of a gateway that punishes as DingTalk does, over HTTP, as fast as their limiters
// allow. Java knows the limiters and nothing else.
func TestOutbound(t *testing.T) {
	t.Parallel()
	o := startOutbound(t)
	t.Run("with the profile", o.profile)
	t.Run("without", o.plain)
	t.Run("a ban", o.ban)
	t.Run("Redis is killed", o.redisAway)
}

// profile checks that for a quarter of a minute there is no penalty and hardly a permit is left unused; for half a
// minute if RATELIMITER_COMPAT_LONG is set.
func (o *outbound) profile(t *testing.T) {
	during := 14 * time.Second
	if longForm() {
		during = 31 * time.Second
	}
	p := o.phase(t, during)
	p.starts(false)
	ledger := p.wait()

	calls, java := p.gateway.calls(anybody), p.gateway.calls(byJava)
	require.NotEmpty(t, calls)
	lasted := calls[len(calls)-1].at.Sub(calls[0].at)
	api := ledger.Key(dinggate.DimAppAPI, dinggate.AppAPI(p.app, dinggate.API("POST", apiPath)))
	allowed := apiRate * lasted.Seconds()
	t.Logf("%d penalties; %d calls in %v, %.1f %% of what is allowed, %d of them Java's; %d in the fullest second",
		ledger.Total.Penalties, api.Admitted, lasted, 100*float64(api.Admitted)/allowed, len(java), api.Worst)
	excused := p.requireNoPenalty(ledger, 0)
	require.Empty(t, p.events(httplimit.EventRateDiffers))
	require.Empty(t, p.errors())
	redistest.Measured(t, lasted >= during-2*time.Second, "calls for %v of %v", lasted, during)
	allowed -= apiRate * 2 * float64(excused) // a penalty ends with the second in which it is over
	redistest.Measured(t, float64(api.Admitted) >= 0.75*allowed, "%d calls, of which %.0f are allowed", api.Admitted, allowed)
	redistest.Measured(t, len(java) > 0, "Java got nothing")
	for i := range goProcesses {
		redistest.Measured(t, ledger.Callers[fmt.Sprint("go-", i)].Admitted > 0, "a process got nothing: %v", ledger.Callers)
	}
}

// plain checks that the gateway punishes calls that are made without the profile.
func (o *outbound) plain(t *testing.T) {
	p := o.phase(t, 2500*time.Millisecond)
	p.starts(true)
	ledger := p.wait()
	of := ledger.Dimensions
	api, address := of[dinggate.DimAppAPI], of[dinggate.DimIP]
	t.Logf("%d penalties, %d of the API, %d of the address; %d of %d calls were rejected", ledger.Total.Penalties,
		api.Penalties, address.Penalties, ledger.Total.Refused, ledger.Total.Calls)
	require.GreaterOrEqual(t, api.Penalties+address.Penalties, int64(2), "one a second, or all in one")
	require.Greater(t, ledger.Total.Refused, ledger.Total.Admitted)
}

// ban checks that when the gateway bans the address, for a reason outside the fleet, one call finds out and then
// nobody calls until the ban is over: Java finds no permits.
func (o *outbound) ban(t *testing.T) {
	p := o.phase(t, 2500*time.Millisecond+banLength+3500*time.Millisecond)
	p.starts(false)
	p.at(2500 * time.Millisecond)
	require.NoError(t, p.gateway.Ban(dinggate.DimIP, "127.0.0.1", banLength))
	ledger := p.wait()

	i := slices.IndexFunc(ledger.Penalties, func(p dinggate.Penalty) bool { return p.Outside })
	require.GreaterOrEqual(t, i, 0, "the gateway does not ban")
	ban := ledger.Penalties[i]
	told := slices.DeleteFunc(p.events(httplimit.EventCoolDown), func(e outboundEvent) bool {
		return e.Limiter != p.ofAddress() // of a call that was held up on its way
	})
	require.NotEmpty(t, told, "nobody noticed")
	require.Empty(t, told[0].Err, "Redis was not told")
	known := told[0].At
	during := p.gateway.calls(func(a arrival) bool { return !a.at.Before(ban.Start) && a.at.Before(ban.Until) })
	until, flying, later := 0, 0, 0
	for _, a := range during {
		switch {
		case !a.at.After(known):
			until++
		case !a.sent.After(known.Add(onItsWay)): // its grant may be older than the cool-down
			flying++
		default:
			later++
		}
	}
	before := p.gateway.calls(func(a arrival) bool { return byJava(a) && a.at.Before(ban.Start) })
	after := p.gateway.calls(func(a arrival) bool { return !a.at.Before(ban.Until) })
	javaAfter := p.gateway.calls(func(a arrival) bool { return byJava(a) && !a.at.Before(ban.Until) })
	redistest.Measured(t, len(before) > 0, "Java does not call")
	require.NotEmpty(t, after, "service does not resume")
	t.Logf("the ban was known after %v; calls until then %d, in flight at that moment %d, later ones %d; the first call %v after its "+
		"end, %d in the %v that follow, %d of them Java's; %d penalties in all", known.Sub(ban.Start), until, flying, later,
		after[0].at.Sub(ban.Until), len(after), after[len(after)-1].at.Sub(ban.Until), len(javaAfter), ledger.Total.Penalties)
	for _, g := range o.seen.at(p.permitsOfAddress()) {
		require.False(t, g.End.After(known) && g.End.Before(told[0].Until), "Redis granted a call %v after it was told", g.End.Sub(known))
	}
	require.Zero(t, later)
	p.requireNoPenalty(ledger, 1)
	redistest.Measured(t, known.Sub(ban.Start) < banLength/2, "the ban was known after %v", known.Sub(ban.Start))
	redistest.Measured(t, until+flying <= goProcesses+javaThreads, "%d calls into the ban", until+flying)
	redistest.Measured(t, after[0].at.Sub(ban.Until) < banLength/2, "the first call %v after the end", after[0].at.Sub(ban.Until))
	redistest.Measured(t, len(javaAfter) > 0, "Java got nothing after the ban")
	redistest.Measured(t, len(after) > apiRate, "%d calls after the ban", len(after))
}

// redisAway checks that nobody calls while Redis is down. Redis is killed, and comes back with what it has written.
//
// Redisson repeats a command that Redis did not reply to, with the clock reading of its first attempt. If Redis comes
// back later than the interval, the permit counts in a window that is over, and the platform sees one more call for
// each thread of Java that waited. Only head-room helps: one permit for each of these threads.
func (o *outbound) redisAway(t *testing.T) {
	p := o.phase(t, 11*time.Second)
	p.headRoom, p.away = javaThreads, true
	p.starts(false)
	gone := p.at(3500 * time.Millisecond)
	o.server.Kill()
	o.seen.lost()
	starts := p.at(6500 * time.Millisecond)
	o.server.Restart()
	back := time.Now()
	o.seen.attach()
	o.seen.reconcile(p.permitsOfApp())
	ledger := p.wait()

	first := func(want func(arrival) bool) string {
		calls := p.gateway.calls(func(a arrival) bool { return want(a) && !a.at.Before(starts) })
		if len(calls) == 0 {
			return "never"
		}
		return calls[0].at.Sub(back).String()
	}
	flying := p.gateway.calls(func(a arrival) bool { return a.at.After(gone) && !a.sent.After(gone.Add(onItsWay)) })
	away := p.gateway.calls(func(a arrival) bool { return a.sent.After(gone.Add(onItsWay)) && a.at.Before(starts) })
	after := p.gateway.calls(func(a arrival) bool { return !byJava(a) && !a.at.Before(starts) })
	require.NotEmpty(t, after, "service does not resume")
	t.Logf("%d penalties; in flight when Redis went %d, calls without it %d; the first call of Go %v after Redis was back, of Java %s; "+
		"%d calls of Go's in the %v that follow", ledger.Total.Penalties, len(flying), len(away), after[0].at.Sub(back),
		first(byJava), len(after), after[len(after)-1].at.Sub(back))
	require.Zero(t, len(away), "calls without Redis")
	require.Empty(t, p.events(httplimit.EventDegraded))
	require.Empty(t, p.errors())
	p.requireNoPenalty(ledger, 0)
	redistest.Measured(t, len(flying) <= goProcesses+javaThreads, "%d calls after Redis was gone", len(flying))
	all := p.gateway.calls(func(a arrival) bool { return !a.at.Before(starts) })
	redistest.Measured(t, len(all) > 2*apiRate, "%d calls after Redis was back", len(all)) // of which Go gets what chance gives it
}

func byJava(a arrival) bool { return a.caller == "java" }
func anybody(arrival) bool  { return true }
