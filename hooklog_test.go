package ratelimiter

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLogHook(t *testing.T) {
	var out bytes.Buffer
	var level slog.LevelVar
	options := &slog.HandlerOptions{Level: &level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	h := LogHook(slog.New(slog.NewTextHandler(&out, options)))
	ctx := context.Background()
	h.Request(ctx, RequestInfo{Limiter: "a", Outcome: RequestGranted})
	require.Empty(t, out.String(), "requests are for level Debug")
	h.Call(CallInfo{Limiter: "a"})
	require.Empty(t, out.String(), "only what is healed is worth a line")
	for _, c := range []struct {
		log  func()
		want string
	}{
		{func() {
			h.Request(ctx, RequestInfo{Limiter: "a", Operation: OperationAllow, Outcome: RequestError, Permits: 2, Err: ErrClosed})
		}, `level=WARN msg="rate limiter: request" limiter=a operation=allow outcome=error permits=2 duration=0s error="ratelimiter: client is closed"`},
		{func() { h.Event(Event{Kind: OutageBegan, Limiter: "a", Err: errors.New("rejected")}) },
			`level=WARN msg="rate limiter: outage began" limiter=a error=rejected`},
		{func() { h.Event(Event{Kind: OutageEnded, Limiter: "a", Duration: time.Second, Degraded: 3}) },
			`level=INFO msg="rate limiter: outage ended" limiter=a duration=1s degraded=3`},
		{func() { h.Event(Event{Kind: Panicked, Limiter: "a", Err: errors.New("panicked: 1")}) },
			`level=ERROR msg="rate limiter: panicked" limiter=a error="panicked: 1"`},
		{func() { h.Call(CallInfo{Limiter: "a", Healed: Healed{Lost: 3}}) },
			`level=INFO msg="rate limiter: healed" limiter=a value=0 lost=3 surplus=0 clock=0`},
	} {
		out.Reset()
		c.log()
		require.Equal(t, c.want+"\n", out.String())
	}

	level.Set(slog.LevelDebug)
	out.Reset()
	h.Request(ctx, RequestInfo{Limiter: "a", Operation: OperationAcquire, Outcome: RequestGranted, Permits: 1, Degraded: true, ClockSkew: time.Second})
	require.Equal(t, "level=DEBUG msg=\"rate limiter: request\" limiter=a operation=acquire outcome=granted permits=1 duration=0s degraded=true clock_skew=1s\n", out.String())
}
