// SPDX-License-Identifier: Apache-2.0

// Package dinggate is a gateway that throttles as DingTalk's does, for tests and an example: an
// http.Handler that counts the calls it gets, punishes who goes over a limit, answers with DingTalk's
// status codes and bodies, and keeps a [Ledger] of all that.
//
// It serves the old API (/topapi/…, /user/…, /robot/send) and the new one (/v1.0/…) under one
// address, tells them apart by the path, and knows who calls by the token, as made by [AppToken],
// [ISVToken] or the token endpoints. It executes nothing: a call that passes gets an empty success.
//
// What is known of the platform and what this package chose:
//
//   - The limits and the lengths of the penalties are the documented ones; see [Standard].
//   - How the platform counts is not documented; the text of its refusals names one calendar second as the window. Here
//     it is stricter than anything that can be: a sliding window, exact to the clock, over the instants at which calls arrive.
//   - What happens to a call during a penalty, except that it is refused, is not documented. Here the
//     penalty stays as long as it was, the call is counted in the
//     ledger alone, and what was counted before the penalty is forgotten: with the real lengths no
//     window reaches back over one.
//   - The platform looks at all dimensions of a call. Here the first that refuses answers, in the order
//     ip, robot, api, app-api or corp-api, month; those behind it do not count the call.
//
// Sources: https://open.dingtalk.com/document/development/call-frequency-limit,
// https://open.dingtalk.com/document/development/how-to-process-api-throttling-on-the-dingtalk-server,
// https://open.dingtalk.com/document/development/custom-robots-send-group-messages. The bodies have theirs
// in answer.go.
package dinggate

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// HeaderCaller names the process that sends a request, for the ledger: [Ledger.Callers].
const HeaderCaller = "X-Dinggate-Caller"

// LedgerPath is where a Gate answers GET with its [Ledger] as JSON. Such requests are not counted.
const LedgerPath = "/dinggate/ledger"

// A Gate is the gateway. It does not promise to be fast: one lock orders all calls, so that what it
// counts is exact. Its methods are safe for concurrent use. Make it with [New].
type Gate struct {
	limits Limits

	mu        sync.Mutex
	meters    map[meterKey]*meter
	penalties []*Penalty
	started   int64
	callers   map[string]*CallerLedger
	total     Counts
	since     time.Time
	answers   int64 // numbers the request ids
}

type meterKey struct {
	dimension Dimension
	key       string
}

// New is a Gate with those limits that has seen no call.
func New(limits Limits) *Gate {
	return &Gate{limits: limits, meters: map[meterKey]*meter{}, callers: map[string]*CallerLedger{}, since: time.Now()}
}

// ServeHTTP answers one call.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == LedgerPath {
		g.serveLedger(w)
		return
	}
	c := g.identify(r)
	g.arrive(c).write(w)
}

// arrive counts a call, and answers what its caller gets. The instant is taken under the lock, so that
// calls are counted in the order of their times.
func (g *Gate) arrive(c request) answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.answers++
	id := requestID{n: g.answers, at: now}
	caller := g.callers[c.caller]
	if caller == nil {
		caller = &CallerLedger{}
		g.callers[c.caller] = caller
	}
	counts := []*Counts{&g.total, &caller.Counts}

	for _, d := range c.dimensions {
		m := g.meter(d.dimension, d.key)
		punished := m.punished(now)
		ok := m.arrive(now)
		if ok {
			continue
		}
		if !punished {
			g.record(m.penalty)
			caller.Penalties++
		}
		for _, n := range counts {
			n.refused(punished)
		}
		return refusal(c, m, id)
	}
	for _, n := range counts {
		n.Calls++
		if c.invalid {
			n.Invalid++
		} else {
			n.Admitted++
		}
	}
	return success(c, id)
}

// meter is that of a dimension's key.
func (g *Gate) meter(d Dimension, key string) *meter {
	k := meterKey{d, key}
	m := g.meters[k]
	if m == nil {
		m = &meter{dimension: d, key: key, limit: g.limits.of(d)}
		g.meters[k] = m
	}
	return m
}

// record keeps a penalty for the ledger.
func (g *Gate) record(p *Penalty) {
	g.started++
	if len(g.penalties) < maxPenalties {
		g.penalties = append(g.penalties, p)
	}
}

// Ban starts a penalty of that length now, as if the key had gone over its limit: the platform's own
// doing, or somebody else's behind the same IP. A penalty that lasts longer stays as it is. The keys
// are those of [AppAPI], [CorpAPI] and [API] for these dimensions, an IP for [DimIP], the robot's
// access token for [DimRobot], and an organisation for [DimMonth].
func (g *Gate) Ban(d Dimension, key string, length time.Duration) error {
	if Standard()[d] == nil || key == "" || length <= 0 {
		return fmt.Errorf("dinggate: no ban of dimension %q, key %q, length %v", d, key, length)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	m := g.meter(d, key)
	if m.until.After(now.Add(length)) {
		return nil
	}
	m.punish(now, now.Add(length), true)
	g.record(m.penalty)
	return nil
}

// address returns the IP that a request comes from.
func address(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr // a pipe's, in a bubble
}
