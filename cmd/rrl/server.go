// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
)

// errStopping is the cause with which requests are cancelled when the service ends.
var errStopping = errors.New("the service is shutting down")

// A service is an HTTP service whose requests take permits. A request is answered when it has its permits
// or has waited too long.
//
//	GET /require?num=N   200 granted, 429 rejected with Retry-After, 400 bad N, 503 no Redis
//	GET /state           the limiter's three keys
//
// A client that wants to wait less than the service would sets a timeout: /require?num=N&timeout=2s.
type service struct {
	limiter *ratelimiter.RateLimiter
	rate    ratelimiter.Rate
	timeout time.Duration

	// asked, if set, is called with every request for permits, and the function that it returns with the
	// response. The status is 0 if the client went away before.
	asked func(r *http.Request) (answered func(status int, a answer))
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /require", s.require)
	mux.HandleFunc("GET /state", s.state)
	return mux
}

// require handles GET /require.
func (s *service) require(w http.ResponseWriter, r *http.Request) {
	answered := func(int, answer) {}
	if s.asked != nil {
		answered = s.asked(r)
	}
	start := time.Now()
	status, a := s.acquire(r.Context(), r.URL.Query())
	if a.WaitedMS = time.Since(start).Milliseconds(); status == http.StatusBadRequest {
		a.WaitedMS = 0
	}
	if a.RetryAfterS > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.RetryAfterS))
	}
	writeJSON(w, status, a)
	if cause := context.Cause(r.Context()); cause != nil && cause != errStopping {
		status = 0
	}
	answered(status, a)
}

// acquire sets the rate if there is none, takes the permits, and returns the response.
func (s *service) acquire(ctx context.Context, q url.Values) (status int, a answer) {
	num, timeout, err := s.parse(q)
	if err != nil {
		return http.StatusBadRequest, answer{Error: err.Error()}
	}
	a.Num = num
	if _, err := s.limiter.TrySetRate(ctx, s.rate); err != nil {
		return s.failed(ctx, a, err)
	}
	a.Granted, err = s.limiter.TryAcquire(ctx, num, timeout)
	if err != nil {
		return s.failed(ctx, a, err)
	}
	// The status is decided. Errors of what is only shown do not change it.
	if available, err := s.limiter.AvailablePermits(ctx); err == nil {
		a.Available = &available
	}
	state, err := s.limiter.Inspect(ctx)
	if err == nil {
		a.Redis = keysOf(state)
	}
	if a.Granted {
		return http.StatusOK, a
	}
	a.Error = fmt.Sprintf("%d permits were not free within %v", num, timeout)
	a.RetryAfterS = seconds(s.rate.Interval)
	if err == nil && a.Available != nil {
		a.RetryAfterS = seconds(backAfter(state, num-*a.Available))
	}
	return http.StatusTooManyRequests, a
}

// parse parses the query. It accepts a num above the rate, since the limiter's rate may be another than
// ours.
func (s *service) parse(q url.Values) (num int64, timeout time.Duration, err error) {
	text := q.Get("num")
	num, err = strconv.ParseInt(text, 10, 64)
	if err != nil || num < 1 || num > math.MaxUint32 {
		return 0, 0, fmt.Errorf("num=%.20q is no number; ask for 1 to %d permits", text, s.rate.Permits)
	}
	timeout = s.timeout
	if q.Has("timeout") {
		text := q.Get("timeout")
		timeout, err = time.ParseDuration(text)
		if err != nil || timeout < 0 || timeout > s.timeout {
			return 0, 0, fmt.Errorf("timeout=%.20q is invalid; ask for 0s to %v", text, s.timeout)
		}
	}
	return num, timeout, nil
}

// failed returns the response to an error of the limiter: 400 for an error in the request, 503 otherwise.
func (s *service) failed(ctx context.Context, a answer, err error) (int, answer) {
	a.Error = oneLine(err)
	if errors.Is(err, ratelimiter.ErrPermitsExceedRate) {
		a.Error = fmt.Sprintf("num=%d is more than the limiter's rate", a.Num)
		return http.StatusBadRequest, a
	}
	if ctx.Err() != nil {
		a.Error = oneLine(context.Cause(ctx)) // errStopping; otherwise the client has gone
	}
	a.RetryAfterS = 1
	return http.StatusServiceUnavailable, a
}

// state handles GET /state.
func (s *service) state(w http.ResponseWriter, r *http.Request) {
	state, err := s.limiter.Inspect(r.Context())
	if err != nil && !errors.Is(err, ratelimiter.ErrNotInitialized) {
		w.Header().Set("Retry-After", "1")
		writeJSON(w, http.StatusServiceUnavailable, answer{Error: oneLine(err)})
		return
	}
	writeJSON(w, http.StatusOK, keysOf(state))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = term.EncodeJSON(w, v) // fails only if the client has gone
}

// backAfter returns how long it takes until so many permits have come back, at most one interval. It is no
// promise: other requests may take them.
func backAfter(s ratelimiter.State, permits int64) time.Duration {
	for _, m := range slices.Backward(s.Members) {
		if m.Expired {
			continue // its permits are available already
		}
		if permits -= int64(m.Permits); permits <= 0 {
			return min(m.Time.Add(s.Rate.Interval).Sub(s.Time), s.Rate.Interval)
		}
	}
	return s.Rate.Interval
}

// seconds returns d in whole seconds for Retry-After, rounded up and at least one.
func seconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}
