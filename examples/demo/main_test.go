// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.Main(m)
}

// inBubble plays the demo in virtual time and returns what it prints. It checks that nothing is left behind.
func inBubble(t *testing.T, play func(ctx context.Context, rdb *redis.Client, name string, out *strings.Builder, opts ...ratelimiter.Option)) (out string) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		var opts []ratelimiter.Option
		if !redistest.TTLsAreVirtual() {
			opts = append(opts, ratelimiter.WithClientClock())
		}
		var b strings.Builder
		name := redistest.Key(t)
		play(t.Context(), rdb, name, &b, opts...)
		require.Empty(t, redistest.Must(rdb.Keys(t.Context(), "*"+name+"*").Result())(t), "left behind")
		out = strings.ReplaceAll(b.String(), name, "NAME")
	})
	return out
}

func TestDemo(t *testing.T) {
	out := inBubble(t, func(ctx context.Context, rdb *redis.Client, name string, out *strings.Builder, opts ...ratelimiter.Option) {
		require.NoError(t, play(ctx, rdb, name, out, opts...))
	})
	require.Equal(t, `5 permits in any 4s
 0.00s  ann wants 2, waits 0.00s: granted
        value 3, permits 2@0.0s
 0.20s  bob wants 2, waits 0.00s: granted
        value 1, permits 2@0.0s 2@0.2s
 0.30s  cat wants 1, waits 0.00s: granted
        value 0, permits 2@0.0s 2@0.2s 1@0.3s
 0.50s  dan wants 6, waits 0.00s: ratelimiter: permits exceed rate: asked for 6 permits of "NAME", whose rate is 5
        value 0, permits 2@0.0s 2@0.2s 1@0.3s
 1.60s  joe wants 1, waits 0.00s: rejected
        value 0, permits 2@0.0s 2@0.2s 1@0.3s
 2.40s  gus wants 1, waits 1.00s: rejected
        value -1, permits [callers wait] 2@0.0s 2@0.2s 1@0.3s
 4.00s  fay wants 2, waits 3.20s: granted
        value -1, permits [callers wait] 2@0.2s 1@0.3s 2@4.0s
 4.30s  hal wants 3, waits 3.10s: granted
        value 0, permits 2@4.0s 3@4.3s
 8.50s  ivy wants 4, waits 0.00s: granted
        value 1, permits 4@8.5s
`, out)
}

func TestInterrupted(t *testing.T) {
	out := inBubble(t, func(ctx context.Context, rdb *redis.Client, name string, out *strings.Builder, opts ...ratelimiter.Option) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		require.ErrorIs(t, play(ctx, rdb, name, out, opts...), context.DeadlineExceeded)
	})
	require.Contains(t, out, "joe")
	require.NotContains(t, out, "ivy")
}

// TestEmbedded runs the program as it is run without a Redis, until it has printed its first line.
func TestEmbedded(t *testing.T) {
	redistest.NoServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	require.ErrorIs(t, run(ctx, "", writer(func(b []byte) { out.Write(b); cancel() })), context.Canceled)
	require.Contains(t, out.String(), "5 permits in any 4s")
	require.ErrorContains(t, run(t.Context(), "redis://u:secret@h:port", &out), "cannot be parsed")
}

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }
