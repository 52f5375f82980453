// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/dinggate"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

const (
	apiPath   = "/topapi/v2/user/get"
	apiRate   = 20              // a second, for each application and API
	banLength = 5 * time.Second // the platform's 5 minutes, scaled

	goProcesses  = 8
	goGoroutines = 4
	javaThreads  = 2

	byJava = "java" // the caller of Java's calls
)

// TestOutbound checks the DingTalk profile with real processes. Eight Go processes with the profile and a JVM with
// Redisson 4.7.0 call one API of a gateway that punishes as DingTalk does, over HTTP, as fast as their limiters
// allow. Java knows the limiters and nothing else.
//
// A phase lasts until what it is about has happened. What must not happen is told by the order of calls, grants and replies.
func TestOutbound(t *testing.T) {
	t.Parallel()
	o := startOutbound(t)
	t.Run("with the profile", o.profile)
	t.Run("without", o.plain)
	t.Run("a ban", o.ban)
	t.Run("Redis is killed", o.redisAway)
}

// profile checks that there is no penalty in as many calls as a quarter of a minute has permits, of half a minute if
// RATELIMITER_COMPAT_LONG is set, and that each process gets some of them. That hardly a permit is left unused only an
// otherwise idle machine can show; in virtual time TestRedissonGetsItsShare does.
func (o *outbound) profile(t *testing.T) {
	during := 14 * time.Second
	if longForm() {
		during = 31 * time.Second
	}
	processes := []string{byJava}
	for i := range goProcesses {
		processes = append(processes, fmt.Sprint("go-", i))
	}
	p := o.phase(t)
	p.starts(false)
	p.goesOn(time.Time{}, apiRate*int(during/time.Second), processes...)
	ledger := p.ends()

	calls, java := p.gateway.calls(anybody), p.gateway.calls(isByJava)
	lasted := calls[len(calls)-1].at.Sub(calls[0].at)
	api := ledger.Key(dinggate.DimAppAPI, dinggate.AppAPI(p.app, dinggate.API("POST", apiPath)))
	allowed := apiRate * lasted.Seconds()
	t.Logf("%d penalties; %d calls in %v, %.1f %% of what is allowed, %d of them Java's; %d in the fullest second",
		ledger.Total.Penalties, api.Admitted, lasted, 100*float64(api.Admitted)/allowed, len(java), api.Worst)
	excused := p.requireNoPenalty(ledger, 0)
	require.Empty(t, p.events(httplimit.EventRateDiffers))
	require.Empty(t, p.errors())
	allowed -= apiRate * 2 * float64(excused) // a penalty ends with the second in which it is over
	redistest.Measured(t, !longForm() || float64(api.Admitted) >= 0.75*allowed, "%d calls, of which %.0f are allowed", api.Admitted, allowed)
}

// plain checks that the gateway punishes calls that are made without the profile, and rejects most of them.
func (o *outbound) plain(t *testing.T) {
	p := o.phase(t)
	p.starts(true)
	p.until("two penalties, one a second or all in one, and more calls that are rejected than admitted", func() bool {
		l := p.gateway.Ledger()
		return l.Dimensions[dinggate.DimAppAPI].Penalties+l.Dimensions[dinggate.DimIP].Penalties >= 2 && l.Total.Refused > l.Total.Admitted
	})
	ledger := p.ends()
	t.Logf("%d penalties, %d of the API, %d of the address; %d of %d calls were rejected", ledger.Total.Penalties,
		ledger.Dimensions[dinggate.DimAppAPI].Penalties, ledger.Dimensions[dinggate.DimIP].Penalties, ledger.Total.Refused, ledger.Total.Calls)
}

// ban checks that when the gateway bans the address, for a reason outside the fleet, whoever it rejects first tells all, and
// then nobody calls until the ban is over: Java finds no permits.
func (o *outbound) ban(t *testing.T) {
	p := o.phase(t)
	p.starts(false)
	p.goesOn(time.Time{}, 2*apiRate, byJava)
	require.NoError(t, p.gateway.Ban(dinggate.DimIP, "127.0.0.1", banLength))
	penalties := p.gateway.Ledger().Penalties
	i := slices.IndexFunc(penalties, func(p dinggate.Penalty) bool { return p.Outside })
	require.GreaterOrEqual(t, i, 0, "the gateway does not ban")
	ban := penalties[i]
	p.goesOn(ban.Until, apiRate, byJava)
	ledger := p.ends()

	told := slices.DeleteFunc(p.events(httplimit.EventCoolDown), func(e outboundEvent) bool {
		return e.Limiter != p.ofAddress() // of a call that was held up on its way
	})
	require.NotEmpty(t, told, "nobody noticed")
	require.Empty(t, told[0].Err, "Redis was not told")
	known := told[0].At
	during := p.gateway.calls(func(a arrival) bool { return !a.at.Before(ban.Start) && a.at.Before(ban.Until) })
	ours := slices.DeleteFunc(slices.Clone(during), isByJava)
	later := slices.DeleteFunc(slices.Clone(during), func(a arrival) bool { return !a.sent.After(known) })
	after := p.gateway.calls(func(a arrival) bool { return !a.at.Before(ban.Until) })
	t.Logf("the ban was known after %v; %d calls into it, %d of them Java's, %d sent later; the first call %v after its end, %d in the "+
		"%v that follow; %d penalties in all", known.Sub(ban.Start), len(during), len(during)-len(ours), len(later),
		after[0].at.Sub(ban.Until), len(after), after[len(after)-1].at.Sub(ban.Until), ledger.Total.Penalties)
	for _, g := range o.seen.at(p.permitsOfAddress()) {
		require.False(t, g.End.After(known) && g.End.Before(told[0].Until), "Redis granted %d permits to %q %v after it was told", g.Permits, g.By, g.End.Sub(known))
	}
	p.requireOneEach(ours, "rejected, and called again") // its process tells Redis before it returns that reply
	p.requireOneEach(later, "after Redis was told")
	p.requireNoPenalty(ledger, 1)
}

// redisAway checks that nobody calls while Redis is down. Redis is killed, and comes back with what it has written.
//
// Redisson repeats a command that Redis did not reply to, with the clock reading of its first attempt. If Redis comes
// back later than the interval, the permit counts in a window that is over, and the platform sees one more call for
// each thread of Java that waited. Only head-room helps: one permit for each of these threads.
func (o *outbound) redisAway(t *testing.T) {
	p := o.phase(t)
	p.headRoom, p.away = javaThreads, true
	p.starts(false)
	p.goesOn(time.Time{}, 2*apiRate, byJava)
	o.server.Kill()
	o.seen.lost()
	gone := time.Now()
	time.Sleep(3 * time.Second)
	starts := time.Now()
	o.server.Restart()
	back := time.Now()
	o.seen.attach()
	o.seen.reconcile(p.permitsOfApp())
	p.goesOn(back, 2*apiRate)
	p.until("service of Go's resumes", func() bool {
		return len(p.gateway.calls(func(a arrival) bool { return !isByJava(a) && a.at.After(back) })) > 0 // it gets what chance gives it
	})
	ledger := p.ends()

	first := func(want func(arrival) bool) string {
		calls := p.gateway.calls(func(a arrival) bool { return want(a) && !a.at.Before(starts) })
		if len(calls) == 0 {
			return "never"
		}
		return calls[0].at.Sub(back).String()
	}
	flying := p.gateway.calls(func(a arrival) bool { return a.sent.After(gone) && a.sent.Before(starts) })
	t.Logf("%d penalties; %d calls whose permits were granted before Redis went; the first call of Go %s after Redis was back, of Java %s",
		ledger.Total.Penalties, len(flying), first(func(a arrival) bool { return !isByJava(a) }), first(isByJava))
	p.requireOneEach(flying, "without Redis")
	require.Empty(t, p.events(httplimit.EventDegraded))
	require.Empty(t, p.errors())
	p.requireNoPenalty(ledger, 0)
}

func isByJava(a arrival) bool { return a.caller == byJava }
func anybody(arrival) bool    { return true }
