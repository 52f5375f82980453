// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Two workers do thirty tasks at 10/1s. Tasks without a limit do not wait behind them, and none of them counts as a retry; the
// last one may not be tried again and waits.
func TestAsynqTasksAreDeferred(t *testing.T) {
	ctx, addr := t.Context(), miniredis.RunT(t).Addr()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	client, err := ratelimiter.New(rdb)
	require.NoError(t, err)
	defer client.Close()
	limiter := client.RateLimiter("mail").WithRate(ratelimiter.Rate{Permits: 10, Interval: time.Second})

	var mu sync.Mutex
	var sent []time.Time
	done := map[string]time.Time{}
	mux := asynq.NewServeMux()
	mux.Handle("mail", AsynqLimit(limiter)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, time.Now())
		return nil
	})))
	mux.HandleFunc("report", func(_ context.Context, task *asynq.Task) error {
		mu.Lock()
		defer mu.Unlock()
		done[string(task.Payload())] = time.Now()
		return nil
	})

	opt := asynq.RedisClientOpt{Addr: addr}
	queue := asynq.NewClient(opt)
	defer queue.Close()
	for i := range 30 {
		_, err := queue.EnqueueContext(ctx, asynq.NewTask("mail", fmt.Append(nil, i)), asynq.MaxRetry(1-i/29))
		require.NoError(t, err)
	}
	began := time.Now()
	for i := range 5 {
		_, err := queue.EnqueueContext(ctx, asynq.NewTask("report", fmt.Append(nil, i)))
		require.NoError(t, err)
	}
	server := asynq.NewServer(opt, AsynqDefers(asynq.Config{Concurrency: 2, DelayedTaskCheckInterval: 50 * time.Millisecond,
		TaskCheckInterval: 20 * time.Millisecond, LogLevel: asynq.FatalLevel}))
	require.NoError(t, server.Start(mux))
	defer server.Shutdown()

	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(sent) == 30 && len(done) == 5
	}, time.Minute, 10*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(sent, time.Time.Compare)
	require.Greater(t, sent[29].Sub(sent[0]), 1900*time.Millisecond, "thirty at ten a second")
	for i, at := range done {
		require.Less(t, at.Sub(began), sent[29].Sub(began), "report %s waited behind the mail", i)
	}
	info, err := asynq.NewInspector(opt).GetQueueInfo("default")
	require.NoError(t, err)
	require.Zero(t, info.Archived, "with MaxRetry(1) the second failure archives a task")
	require.Zero(t, info.FailedTotal)
}
