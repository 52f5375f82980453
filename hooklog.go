// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// LogHook returns a Hook that writes a log: at level Error a panic; at Warn the begin of an outage, a rate change,
// mixed layouts, and a request with the outcome [RequestError]; at Info the end of an outage, permits that were healed,
// and the start of a Client; at Debug all other requests.
//
// Each record has the name of the limiter, which may contain a user or an address. Of requests that fail with the same
// kind of error, it warns once in ten seconds and writes the others at Debug; the next warning has their number as
// similar.
func LogHook(logger *slog.Logger) Hook {
	var failures failureLog
	return Hook{
		Started: func(c ClientInfo) {
			logger.LogAttrs(context.Background(), slog.LevelInfo, "rate limiter: started", slog.String("client_id", c.ID), slog.String("process", c.Process))
		},
		Request: func(ctx context.Context, r RequestInfo) {
			level, similar := slog.LevelDebug, 0
			if r.Outcome == RequestError {
				var first bool
				if first, similar = failures.add(r.Err); first {
					level = slog.LevelWarn
				}
			}
			if !logger.Enabled(ctx, level) {
				return
			}
			attrs := []slog.Attr{slog.String("limiter", r.Limiter), slog.String("operation", string(r.Operation)),
				slog.String("outcome", string(r.Outcome)), slog.Int64("permits", r.Permits), slog.Duration("duration", r.Duration)}
			if r.Degraded {
				attrs = append(attrs, slog.Bool("degraded", true))
			}
			if r.ClockSkew > 0 {
				attrs = append(attrs, slog.Duration("clock_skew", r.ClockSkew))
			}
			if r.Err != nil {
				attrs = append(attrs, slog.Any("error", r.Err))
			}
			if similar > 0 {
				attrs = append(attrs, slog.Int("similar", similar))
			}
			logger.LogAttrs(ctx, level, "rate limiter: request", attrs...)
		},
		Call: func(c CallInfo) {
			if c.Healed == (Healed{}) {
				return
			}
			logger.LogAttrs(context.Background(), slog.LevelInfo, "rate limiter: healed", slog.String("limiter", c.Limiter),
				slog.Int64("value", c.Healed.Value), slog.Int64("lost", c.Healed.Lost),
				slog.Int64("surplus", c.Healed.Surplus), slog.Int64("clock", c.Healed.Clock))
		},
		Event: func(e Event) {
			ctx, level := context.Background(), slog.LevelWarn
			attrs := []slog.Attr{slog.String("limiter", e.Limiter)}
			switch e.Kind {
			case OutageEnded:
				level = slog.LevelInfo
				attrs = append(attrs, slog.Duration("duration", e.Duration), slog.Int64("degraded", e.Degraded))
			case Panicked:
				level = slog.LevelError
			}
			if e.Err != nil {
				attrs = append(attrs, slog.Any("error", e.Err))
			}
			logger.LogAttrs(ctx, level, "rate limiter: "+string(e.Kind), attrs...)
		},
	}
}

// A failureLog bounds how many failed requests are worth a warning. The zero value is ready for use.
type failureLog struct {
	mu    sync.Mutex
	kinds map[error]failures // by the sentinel that the errors wrap; nil for all others together
}

type failures struct {
	warned  time.Time
	similar int // since then
}

// add counts a failed request. It reports whether to warn of it, and then how many like it there were since the last warning.
func (l *failureLog) add(err error) (warn bool, similar int) {
	var kind error
	for _, sentinel := range []error{ErrUnavailable, ErrOverloaded, ErrNotInitialized, ErrPermitsExceedRate, ErrInvalidArgument,
		ErrNameNotClusterSafe, ErrClosed, ErrMalformed, ErrConflict, ErrDenied} {
		if errors.Is(err, sentinel) {
			kind = sentinel
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f, now := l.kinds[kind], time.Now()
	if !f.warned.IsZero() && now.Sub(f.warned) < 10*time.Second {
		f.similar++
	} else {
		warn, similar = true, f.similar
		f = failures{warned: now}
	}
	if l.kinds == nil {
		l.kinds = map[error]failures{}
	}
	l.kinds[kind] = f
	return warn, similar
}
