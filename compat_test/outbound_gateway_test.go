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
}

// A gateway is a gateway like DingTalk's, on loopback, that remembers every call.
type gateway struct {
	*dinggate.Gate
	url string

	mu       sync.Mutex
	arrivals []arrival
}

// startGateway starts one with DingTalk's limits but for a shorter penalty of an address, and without the monthly limit.
func startGateway(t testing.TB) *gateway {
	l := dinggate.Standard()
	l.IP.Penalty, l.Month = banLength, dinggate.Limit{}
	g := &gateway{Gate: dinggate.New(dinggate.WithLimits(l))}
	server := httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	a := arrival{at: time.Now(), caller: r.Header.Get(dinggate.HeaderCaller)}
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
