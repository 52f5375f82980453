// SPDX-License-Identifier: Apache-2.0

// Command demo shows a limiter at work: 5 permits in any 4 s, which clients get at once, wait for, or give up on, and what that looks
// like in Redis.
//
//	go run ./examples/demo
//
// It starts an embedded Redis, or uses the one at REDIS_URL, where it creates a limiter of its own and deletes it at the end. It takes
// 9 s. Each line says what a client was told, and then what Redis holds: how many permits are left by the key value, and the grants of
// the last interval by the key permits, each with its permits and its time. A member, for which value is one less, says that callers
// wait: it keeps Java callers from overtaking them. Redisson reads and writes the same keys.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A step is one request of a client.
type step struct {
	at      time.Duration // since the beginning
	client  string
	permits int64
	timeout time.Duration // how long the client waits for its permits
}

const ms = time.Millisecond

var rate = ratelimiter.Rate{Permits: 5, Interval: 4 * time.Second}

var steps = []step{
	// The permits are used up.
	{0, "ann", 2, time.Minute}, {200 * ms, "bob", 2, time.Minute}, {300 * ms, "cat", 1, time.Minute},
	// More than the rate is an error.
	{500 * ms, "dan", 6, time.Minute},
	// These wait until permits have come back, 4 s after they were taken: fay for those of ann, hal for those of bob and cat.
	{800 * ms, "fay", 2, time.Minute}, {1200 * ms, "hal", 3, time.Minute},
	// One that does not wait for so long is rejected. So is one that does not wait at all.
	{1400 * ms, "gus", 1, time.Second}, {1600 * ms, "joe", 1, 0},
	// After all have come back there is room again.
	{8500 * ms, "ivy", 4, time.Minute},
}

func main() {
	logging.Disable() // go-redis also logs the errors that it returns
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("REDIS_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run plays the demo on the Redis at url, or on an embedded one.
func run(ctx context.Context, url string, out io.Writer) error {
	if url == "" {
		m, err := embedded()
		if err != nil {
			return err
		}
		defer m.Close()
		url = m.Addr()
	}
	rdb, err := newRedis(url)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	return play(ctx, rdb, "demo:"+uuid.NewString()[:8], out)
}

// play makes the requests of all steps, each at its time.
func play(ctx context.Context, rdb *redis.Client, name string, out io.Writer, opts ...ratelimiter.Option) error {
	client, err := ratelimiter.New(rdb, opts...)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	l := client.RateLimiter(name)
	if err := l.SetRate(ctx, rate); err != nil {
		return err
	}
	defer func() { _, _ = l.Admin().Delete(context.WithoutCancel(ctx)) }()
	fmt.Fprintf(out, "%d permits in any %v\n", rate.Permits, rate.Interval)
	begin := time.Now()
	var mu sync.Mutex // of out
	var all sync.WaitGroup
	for _, s := range steps {
		all.Go(func() {
			select {
			case <-time.After(s.at):
			case <-ctx.Done():
				return
			}
			asked := time.Now()
			granted, err := l.TryAcquire(ctx, s.permits, s.timeout)
			told := "granted"
			switch {
			case err != nil:
				told = err.Error()
			case !granted:
				told = "rejected"
			}
			waited := time.Since(asked)
			state, stateErr := l.Admin().Inspect(ctx)
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(out, "%5.2fs  %s wants %d, waits %.2fs: %s\n", time.Since(begin).Seconds(), s.client, s.permits, waited.Seconds(), told)
			if stateErr == nil {
				fmt.Fprintf(out, "        %s\n", keys(state, begin))
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// keys returns what Redis holds in a line, oldest grants first, with their times since begin by the clock of Redis.
func keys(s ratelimiter.State, begin time.Time) string {
	var grants []string
	for _, m := range slices.Backward(s.Members) {
		if m.Time.UnixMilli() == 0 {
			grants = append(grants, "[callers wait]")
			continue
		}
		grants = append(grants, fmt.Sprintf("%d@%.1fs", m.Permits, m.Time.Sub(begin).Seconds()))
	}
	return fmt.Sprintf("value %s, permits %s", s.Value, strings.Join(grants, " "))
}
