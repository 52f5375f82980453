// SPDX-License-Identifier: Apache-2.0

// Package metricname bounds the number of values that a [ratelimiter.Hook] for metrics reports. Names of limiters and
// texts of errors are unlimited in number; this package maps them to a few values of an attribute. It also defines
// the bounds of histograms.
//
// The modules otelratelimiter and prometheusratelimiter use it. It is exported so that each of them works with any
// later version of this module; see VERSIONING.md.
package metricname

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goredisson/ratelimiter"
)

// MaxPolicies is the largest number of values that a function of [Policies] returns besides _OTHER.
const MaxPolicies = 64

// other is the value of everything that has no value of its own, as in OpenTelemetry's semantic conventions.
const other = "_OTHER"

// Bounds returns the bounds of histograms: of the durations of waits and of calls in seconds, of the number of requests
// that share a call, and of the durations of outages in seconds. The slices are the caller's.
func Bounds() (wait, call, batch, outage []float64) {
	return []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 600},
		[]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5},
		[]float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1024},
		[]float64{0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
}

// MaxClients is of how many Clients that share a Hook the metrics have the id: programs have few, and tests many.
const MaxClients = 16

// Policies returns a function that maps the name of each limiter with the function name, to at most MaxPolicies values, which
// are the first ones of name, and _OTHER. If name is nil, the value of every limiter is _OTHER. The function is safe for
// concurrent use.
func Policies(name func(limiter string) string) func(limiter string) string {
	p := &policies{name: name}
	p.known.Store(&map[string]bool{})
	return p.of
}

type policies struct {
	name  func(limiter string) string
	known atomic.Pointer[map[string]bool] // replaced as a whole
	mu    sync.Mutex
}

func (p *policies) of(limiter string) string {
	if p.name == nil {
		return other
	}
	value := p.name(limiter)
	if known := *p.known.Load(); known[value] {
		return value
	} else if len(known) >= MaxPolicies {
		return other
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := maps.Clone(*p.known.Load())
	if !known[value] && len(known) >= MaxPolicies {
		return other
	}
	known[value] = true
	p.known.Store(&known)
	return value
}

// EachHealed calls f for each number of permits in h that is not 0. The cause is the name of the check of rrl doctor.
func EachHealed(h ratelimiter.Healed, f func(cause string, permits int64)) {
	for _, part := range [...]struct {
		cause   string
		permits int64
	}{{"value", h.Value}, {"lost", h.Lost}, {"surplus", h.Surplus}, {"clock", h.Clock}} {
		if part.permits > 0 {
			f(part.cause, part.permits)
		}
	}
}

// replies are the first words of the error replies that have a value of their own.
var replies = []string{"OOM", "READONLY", "NOREPLICAS", "MISCONF", "LOADING", "MASTERDOWN", "CLUSTERDOWN",
	"MOVED", "ASK", "TRYAGAIN", "NOSCRIPT", "NOPERM", "NOAUTH", "WRONGTYPE", "BUSY"}

// OfError returns a short name for the kind of an error, or _OTHER. The name contains neither the limiter nor the server.
func OfError(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
		{ratelimiter.ErrNotInitialized, "not_initialized"},
		{ratelimiter.ErrPermitsExceedRate, "permits_exceed_rate"},
		{ratelimiter.ErrInvalidArgument, "invalid_argument"},
		{ratelimiter.ErrNameNotClusterSafe, "name_not_cluster_safe"},
		{ratelimiter.ErrMalformed, "malformed"},
		{ratelimiter.ErrConflict, "conflict"},
		{ratelimiter.ErrClosed, "closed"},
		{ratelimiter.ErrUnavailable, "unavailable"},
		{ratelimiter.ErrOverloaded, "overloaded"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	var network net.Error
	switch {
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case network != nil:
		return "network"
	}
	text := err.Error()
	if strings.HasPrefix(text, "ERR Error running script") {
		// Redis before 7.0 puts this before what a command of the script replied: "@user_script: 12: -OOM command …".
		for word := range strings.FieldsSeq(text) {
			if word = strings.TrimPrefix(word, "-"); slices.Contains(replies, word) {
				return word
			}
		}
	}
	if word, _, _ := strings.Cut(text, " "); slices.Contains(replies, word) {
		return word
	}
	return other
}
