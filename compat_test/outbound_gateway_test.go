// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dinggate"
)

// An arrival is a call that the gateway received.
type arrival struct {
	at, sent time.Time
	caller   string
	robot    bool
}

// A gateway is a gateway like DingTalk's, on loopback, that remembers every call.
type gateway struct {
	*dinggate.Gate
	url string

	mu       sync.Mutex
	arrivals []arrival
}

// scaledLimits returns DingTalk's limits with shorter long penalties and a shorter robot's minute, and without the
// monthly limit.
func scaledLimits() dinggate.Limits {
	l := dinggate.Standard()
	l.IP.Penalty = banLength
	l.Robot.Window, l.Robot.Penalty = robotInterval, banLength
	l.Month = dinggate.Limit{}
	return l
}

func startGateway(t testing.TB) *gateway {
	g := &gateway{Gate: dinggate.New(dinggate.WithLimits(scaledLimits()))}
	server := httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	a := arrival{at: time.Now(), caller: r.Header.Get(dinggate.HeaderCaller), robot: r.URL.Path != apiPath}
	if ns, err := strconv.ParseInt(r.Header.Get(headerSent), 10, 64); err == nil {
		a.sent = time.Unix(0, ns)
		g.mu.Lock()
		g.arrivals = append(g.arrivals, a)
		g.mu.Unlock()
	}
	g.ServeHTTP(w, r)
}

// calls returns the arrivals that keep accepts, in order.
func (g *gateway) calls(keep func(arrival) bool) []arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []arrival
	for _, a := range g.arrivals {
		if keep(a) {
			out = append(out, a)
		}
	}
	return out
}
