// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A play sends the requests of the clients, through a proxy that adds their addresses, and counts the
// responses.
type play struct {
	ctx  context.Context
	out  io.Writer
	urls []string
	rate ratelimiter.Rate

	requests, answered, rejected, undecided, wrong int
}

// scenes plays all scenes, the last of them only if there is a Redis to stop.
func (p *play) scenes(stopRedis func()) {
	p.title("ann asks both servers in turn")
	var after time.Duration
	for i := range 7 {
		if i < int(p.rate.Permits) {
			p.get(i%2, "/orders/1", "198.51.100.1", 200)
		} else {
			after = p.get(i%2, "/orders/1", "198.51.100.1", 429)
		}
	}
	p.title("bob has an address of his own")
	p.get(0, "/orders/2", "198.51.100.2", 200)
	p.title("ann forges X-Forwarded-For; the proxy adds her address behind it")
	p.get(1, "/orders/1", "198.51.100.2, 198.51.100.1", 429)
	p.title("health checks are not limited")
	p.get(0, "/health", "198.51.100.1", 200)
	p.title(fmt.Sprintf("ann waits for %v, as Retry-After says", after))
	select {
	case <-time.After(after):
	case <-p.ctx.Done():
	}
	p.get(1, "/orders/1", "198.51.100.1", 200)
	if stopRedis != nil {
		p.title("Redis goes away")
		stopRedis()
		p.get(0, "/orders/2", "198.51.100.2", 503)
		p.get(0, "/health", "198.51.100.2", 200)
	}
}

func (p *play) title(s string) {
	if p.ctx.Err() == nil {
		fmt.Fprintf(p.out, "\n%s\n", s)
	}
}

// get sends one request and shows the response. It returns the Retry-After.
func (p *play) get(server int, path, forwarded string, want int) (after time.Duration) {
	r, err := http.NewRequestWithContext(p.ctx, http.MethodGet, p.urls[server]+path, nil)
	if err != nil {
		p.wrong++
		return 0
	}
	r.Header.Set("X-Forwarded-For", forwarded)
	resp, err := http.DefaultClient.Do(r)
	if p.ctx.Err() != nil {
		return 0
	}
	p.requests++
	if err != nil {
		fmt.Fprintln(p.out, " ", err)
		p.wrong++
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	line := fmt.Sprintf("  server %d  GET %-9s  %d", server+1, path, resp.StatusCode)
	for _, field := range []string{"RateLimit", "RateLimit-Policy", "Retry-After"} {
		if v := resp.Header.Get(field); v != "" {
			line += fmt.Sprintf("  %s: %s", field, v)
		}
	}
	switch resp.StatusCode {
	case http.StatusOK:
		p.answered++
	case http.StatusTooManyRequests:
		p.rejected++
	case http.StatusServiceUnavailable:
		p.undecided++
	}
	if resp.StatusCode != want {
		p.wrong++
		line += fmt.Sprintf("  (expected %d)", want)
	}
	fmt.Fprintln(p.out, line)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second
}
