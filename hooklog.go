// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"log/slog"
)

// LogHook returns a Hook that writes a log. The levels are:
//
//   - Error for a panic.
//   - Warn for the begin of an outage, for a rate change, and for a request with the outcome [RequestError].
//   - Info for the end of an outage and for permits that were healed.
//   - Debug for all other requests, such as those whose context ended.
//
// Each record has the name of the limiter, which may contain a user or an address.
func LogHook(logger *slog.Logger) Hook {
	return Hook{
		Request: func(ctx context.Context, r RequestInfo) {
			level := slog.LevelDebug
			if r.Outcome == RequestError {
				level = slog.LevelWarn
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
