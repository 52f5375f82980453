// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/dinggate"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/redistest/worker"
)

// An outbound is what the phases share: a Redis, a monitor of its grants, and a JVM.
type outbound struct {
	server *redistest.Server
	seen   *monitor
	java   *peer
}

func startOutbound(t *testing.T) *outbound {
	o := &outbound{server: redistest.Start(t, "--appendonly", "yes")}
	o.seen = startMonitor(t, o.server.Client(t))
	o.java = startPeer(t, listed(t, "4.7.0"), o.server.Addr())
	return o
}

// A phase is a load on a gateway, with an application of its own.
type phase struct {
	*testing.T
	outbound *outbound
	gateway  *gateway
	app      string
	headRoom int64 // of the API's permits
	away     bool  // Redis is unavailable for a while
	running  sync.WaitGroup
	java     *pending

	mu      sync.Mutex
	tallies []outboundTally
}

// phaseLimit is longer than any phase lasts. It ends one in which what has to happen does not.
const phaseLimit = 2 * time.Minute

func (o *outbound) phase(t *testing.T) *phase {
	return &phase{T: t, outbound: o, gateway: startGateway(t), app: strings.ReplaceAll(t.Name(), "/", ".")}
}

// The names of the limiters of the profile that Java uses as well.
func (p *phase) ofApp() string        { return "{dingtalk}:app-api:" + p.app + ":" + apiPath + ":1s" }
func (p *phase) permitsOfApp() string { return p.ofApp() + ":permits" } // a name with braces gets no further braces
func (p *phase) ofAddress() string    { return "{dingtalk}:ip:default:20s" }

func (p *phase) permitsOfAddress() string { return p.ofAddress() + ":permits" }

// starts starts the load of the Go processes and, if they use the profile, that of Java.
func (p *phase) starts(plain bool) {
	p.Helper()
	var all []worker.Plan
	for i := range goProcesses {
		all = append(all, &outboundPlan{
			Addr: p.outbound.server.Addr(), URL: p.gateway.url, Name: fmt.Sprint("go-", i), App: p.app,
			Plain: plain, Permits: apiRate - p.headRoom,
		})
	}
	workers := worker.Start(p, all...)
	for _, w := range workers {
		p.running.Go(func() {
			var tally outboundTally
			if err := w.Result(&tally); err != nil {
				p.Errorf("a Go process: %v", err)
			}
			p.mu.Lock()
			p.tallies = append(p.tallies, tally)
			p.mu.Unlock()
		})
	}
	if !plain {
		p.startJava()
	}
}

// startJava starts the load of Java as soon as Go has set the rates.
func (p *phase) startJava() {
	p.Helper()
	client := clienttest.New(p, p.outbound.server.Client(p))
	defer client.Close()
	for _, name := range []string{p.ofApp(), p.ofAddress()} {
		require.Eventually(p, func() bool {
			_, err := client.RateLimiter(name).Rate(p.Context())
			return err == nil
		}, callLimit, 5*time.Millisecond, name)
		require.False(p, p.outbound.java.truth(p, "trySetRate", name, overall, apiRate, time.Second), "Go has set the rate")
	}
	p.java = p.outbound.java.begin("callAPI", p.gateway.url+apiPath+"?access_token="+dinggate.AppToken(p.app),
		javaThreads, phaseLimit, 0, p.ofApp(), p.ofAddress())
	p.running.Go(func() {
		text, err := p.java.wait(phaseLimit + callLimit)
		if err != nil {
			p.Errorf("Java: %v", err)
		}
		p.Logf("Java: %s", text)
	})
}

// until waits for what the load brings about sooner or later, however slow the machine is.
func (p *phase) until(what string, happened func() bool) {
	p.Helper()
	require.Eventually(p, happened, phaseLimit, 20*time.Millisecond, what)
}

// goesOn waits until, since then, the gateway has received more than n calls, and of each of these processes one.
func (p *phase) goesOn(then time.Time, n int, processes ...string) {
	p.Helper()
	p.until(fmt.Sprintf("%d calls, and one of each of %v", n, processes), func() bool {
		calls := p.gateway.calls(func(a arrival) bool { return !a.at.Before(then) })
		return len(calls) > n && !slices.ContainsFunc(processes, func(name string) bool {
			return !slices.ContainsFunc(calls, func(a arrival) bool { return a.process() == name })
		})
	})
}

// ends ends the load and returns the gateway's ledger.
func (p *phase) ends() dinggate.Ledger {
	p.Helper()
	p.gateway.end()
	if p.java != nil {
		redistest.Must(p.java.cancel())(p)
	}
	p.running.Wait()
	return p.gateway.Ledger()
}

// requireOneEach checks that each goroutine has made no more than one of the calls, and the JVM no more than one for each
// of its threads: the call for which it already had its permits.
func (p *phase) requireOneEach(calls []arrival, what string) {
	p.Helper()
	made := map[string]int{}
	for _, a := range calls {
		made[a.caller]++
	}
	for caller, n := range made {
		most := 1
		if caller == byJava {
			most = javaThreads
		}
		require.LessOrEqual(p, n, most, "%s: calls of %s, %+v", what, caller, calls)
	}
}

// errors returns the errors of the Go callers, with their numbers.
func (p *phase) errors() map[string]int64 {
	all := map[string]int64{}
	for _, t := range p.tallies {
		for text, n := range t.Errors {
			all[text] += n
		}
	}
	return all
}

// events returns the events of one kind of all Go processes, by time.
func (p *phase) events(kind httplimit.EventKind) []outboundEvent {
	var all []outboundEvent
	for _, t := range p.tallies {
		for _, e := range t.Events {
			if e.Kind == kind {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b outboundEvent) int { return a.At.Compare(b.At) })
	return all
}

// heldUpOnItsWay is the time in flight from which on the profile, whose margin is 50 ms, promises nothing for a
// call. Where the processes have two cores to themselves, the slowest call of a second takes 3 to 18 ms from the
// clock that granted it to the gateway.
const heldUpOnItsWay = 40 * time.Millisecond

// requireNoPenalty checks that there were no penalties but those that the machine caused by holding up a call of the
// full second. It returns the number of those.
func (p *phase) requireNoPenalty(l dinggate.Ledger, outside int) int {
	p.Helper()
	excused := 0
	for _, penalty := range l.Penalties {
		switch {
		case penalty.Outside:
			outside--
		case penalty.Dimension == dinggate.DimAppAPI && p.wasHeldUp(penalty.Start):
			excused++
		default:
			p.Errorf("a penalty, and no call was held up: %+v", penalty)
		}
	}
	require.Zero(p, outside, "penalties from outside: %+v", l.Penalties)
	return excused
}

// wasHeldUp reports whether one of the calls of the second before until was held up between its grant, by the clock
// of Redis or of Java, and the gateway. In a phase in which Redis was unavailable, a call that took longer than the second was
// not held up by the machine, but sent again by Redisson, for which there is head-room. Each call is matched with the last grant
// before it left that is not matched with another call.
func (p *phase) wasHeldUp(until time.Time) bool {
	p.Helper()
	grants := p.outbound.seen.at(p.permitsOfApp())
	slices.SortFunc(grants, func(a, b grantlog.Grant) int { return b.End.Compare(a.End) })
	// Calls that arrived later are matched, too, or the others would be matched with the grants of those.
	full := p.gateway.calls(func(a arrival) bool { return !a.at.After(until) })
	full = full[max(0, len(full)-apiRate-1):]
	calls := p.gateway.calls(anybody)
	slices.SortFunc(calls, func(a, b arrival) int { return b.sent.Compare(a.sent) })
	var most time.Duration
	resent := int64(0)
	for _, c := range calls {
		i := slices.IndexFunc(grants, func(g grantlog.Grant) bool { return !g.End.After(c.sent) })
		if of := slices.Contains(full, c); of && i < 0 {
			p.Errorf("a call that nobody granted: %+v", c)
			return false
		} else if i < 0 {
			break
		} else if took := c.at.Sub(grants[i].Begin); of && p.away && took >= time.Second {
			resent++
		} else if of {
			most = max(most, took)
		}
		grants = grants[i+1:]
	}
	p.Logf("PENALTY: the slowest call of its interval was %v under way, and Redisson sent %d again", most, resent)
	return most > heldUpOnItsWay && resent <= p.headRoom
}
