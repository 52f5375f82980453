// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/dinggate"
)

// An arrival is a call that the gateway received. Its caller is a goroutine of a Go process, "go-3.1", or "java".
type arrival struct {
	at, sent time.Time
	caller   string
}

// process returns the process of the caller.
func (a arrival) process() string {
	process, _, _ := strings.Cut(a.caller, ".")
	return process
}

// endPath is where the gateway replies as soon as the load is to end.
const endPath = "/end"

// A gateway is a gateway like DingTalk's, on loopback, that remembers every call.
type gateway struct {
	*dinggate.Gate
	url string
	end func() // ends the load

	mu       sync.Mutex
	arrivals []arrival
}

// startGateway starts one with DingTalk's limits but for a shorter penalty of an address, and without the monthly limit.
func startGateway(t testing.TB) *gateway {
	l := dinggate.Standard()
	l[dinggate.DimIP].Penalty, l[dinggate.DimMonth] = banLength, nil
	g := &gateway{Gate: dinggate.New(l)}
	ended := make(chan struct{})
	g.end = sync.OnceFunc(func() { close(ended) })
	mux := http.NewServeMux()
	mux.HandleFunc("/", g.serve)
	mux.HandleFunc(endPath, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(g.end)
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
