// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
)

// A step is one request of one client in the play.
type step struct {
	at      time.Duration // after the start
	client  string
	num     string
	timeout time.Duration // how long it is willing to wait; 0 leaves that to the service
	again   bool          // if rejected, the client asks once more after the Retry-After
}

// thePlay is the script of the demo, for a limiter of 5 permits in 10 s. It takes 21 s, in which requests
// are granted, delayed, rejected and rejected as invalid, and in which one rejected client comes back after
// its Retry-After. No two clients wait for the same permits, so the outcome does not depend on the order
// in which waiters are served.
var thePlay = []step{
	// The permits are used up.
	{at: 0, client: "ann", num: "2"},
	{at: 400 * time.Millisecond, client: "bob", num: "2"},
	{at: 800 * time.Millisecond, client: "cat", num: "1"},
	// More than the rate, not a number, and no permits at all.
	{at: 1200 * time.Millisecond, client: "dan", num: "6"},
	{at: 1500 * time.Millisecond, client: "eve", num: "two"},
	{at: 1600 * time.Millisecond, client: "eve", num: "0"},
	// Delayed until ann's permits are back, at 10 s, and until bob's and cat's are, at 10.8 s.
	{at: 2000 * time.Millisecond, client: "fay", num: "2"},
	{at: 3000 * time.Millisecond, client: "hal", num: "3"},
	// Waits for 2 s only, and is rejected.
	{at: 2500 * time.Millisecond, client: "gus", num: "1", timeout: 2 * time.Second},
	// Four permits are free when fay's and hal's are back, at 20.8 s.
	{at: 12 * time.Second, client: "ivy", num: "4"},
	// Rejected at 16.9 s with a Retry-After of 4 s, when the fifth permit is free.
	{at: 13900 * time.Millisecond, client: "jim", num: "1", timeout: 3 * time.Second, again: true},
}

// scaled returns steps with all times multiplied by num/den.
func scaled(steps []step, num, den time.Duration) []step {
	out := make([]step, len(steps))
	for i, s := range steps {
		s.at, s.timeout = s.at*num/den, s.timeout*num/den
		out[i] = s
	}
	return out
}

// A troupe plays the clients over HTTP.
type troupe struct {
	base     string // http://host:port
	http     *http.Client
	start    time.Time
	asked    func(exchange)
	answered func(exchange)
}

// play runs all steps and returns when the last one is done or ctx is.
func (t *troupe) play(ctx context.Context, steps []step) error {
	var wg sync.WaitGroup
	for _, s := range steps {
		wg.Go(func() {
			if retry.Sleep(ctx, time.Until(t.start.Add(s.at))) != nil {
				return
			}
			e := t.request(ctx, s)
			if s.again && e.Status == http.StatusTooManyRequests &&
				retry.Sleep(ctx, time.Duration(e.Answer.RetryAfterS)*time.Second) == nil {
				s.timeout = 0
				t.request(ctx, s)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// request sends one request and reports it when it is sent and when it is answered. The end of a
// request that ctx ended is not reported.
func (t *troupe) request(ctx context.Context, s step) exchange {
	e := exchange{Client: s.client, Num: s.num, Timeout: s.timeout, Asked: time.Since(t.start)}
	t.asked(e)
	e.Status, e.Answer, e.Err = t.get(ctx, s)
	e.Done = time.Since(t.start)
	if ctx.Err() == nil {
		t.answered(e)
	}
	return e
}

func (t *troupe) get(ctx context.Context, s step) (int, answer, error) {
	q := url.Values{"num": {s.num}}
	if s.timeout > 0 {
		q.Set("timeout", s.timeout.String())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base+"/require?"+q.Encode(), nil)
	if err != nil {
		return 0, answer{}, err
	}
	req.Header.Set("User-Agent", "rrl-demo/"+s.client)
	resp, err := t.http.Do(req)
	if err != nil {
		return 0, answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, answer{}, err
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return 0, answer{}, fmt.Errorf("%s with an invalid body: %w", resp.Status, err)
	}
	// Other clients read the header, so this one does too.
	a.RetryAfterS = 0
	if v := resp.Header.Get("Retry-After"); v != "" {
		if _, err := fmt.Sscan(v, &a.RetryAfterS); err != nil {
			return 0, answer{}, fmt.Errorf("%s with Retry-After %q", resp.Status, v)
		}
	}
	return resp.StatusCode, a, nil
}
