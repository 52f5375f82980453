// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slowLogArgs make a server log each command that takes a millisecond or more.
var slowLogArgs = []string{"--slowlog-log-slower-than", "1000", "--slowlog-max-len", "10000"}

// StartLogged starts a server as [Start] does, for [RequireQuick].
func StartLogged(t testing.TB, args ...string) *Server {
	t.Helper()
	return Start(t, append(args, slowLogArgs...)...)
}

// FillMillion adds 100,000 limiters and 800,000 other keys to the server of rdb, which allows DEBUG: a million keys in
// all.
func FillMillion(t testing.TB, rdb *redis.Client) {
	t.Helper()
	const fill = `for i = ARGV[1], ARGV[2] do
		redis.call('HSET', 'limiter' .. i, 'rate', 5, 'interval', 60000, 'type', 0)
		redis.call('SET', '{limiter' .. i .. '}:value', 4)
	end
	return 1`
	err := rdb.Do(t.Context(), "debug", "populate", 800_000, "other").Err()
	for i := 0; i < 100 && err == nil; i++ {
		err = rdb.Eval(t.Context(), fill, nil, 1000*i, 1000*i+999).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// RequireQuick fails t if a command in the slow log of rdb is slow each time: on a busy machine any command can be slow
// by the clock, so each is repeated up to ten times. It leaves out those for which skip, if there is one, returns true.
// It returns how many were slow once.
func RequireQuick(t testing.TB, rdb *redis.Client, skip func(args []string) bool) int {
	t.Helper()
	ctx := t.Context()
	slow := rdb.SlowLogGet(ctx, 10_000).Val()
	for _, entry := range slow {
		if skip != nil && skip(entry.Args) {
			continue
		}
		if CutShort(entry.Args) {
			t.Fatalf("a command with so many arguments that the log has not all of them cannot be repeated: %v", entry.Args)
		}
		args := make([]any, len(entry.Args))
		for i, a := range entry.Args {
			args[i] = a
		}
		best := time.Hour
		for range 10 {
			if err := rdb.SlowLogReset(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			_ = rdb.Do(ctx, args...).Err()
			again := rdb.SlowLogGet(ctx, 10).Val()
			if len(again) == 0 {
				best = 0
				break
			}
			best = min(best, again[0].Duration)
		}
		if best >= time.Millisecond {
			t.Fatalf("a command takes Redis %v, the best of ten times: %v", best, entry.Args)
		}
	}
	return len(slow)
}

// CutShort reports whether the slow log does not have all arguments of a command.
func CutShort(args []string) bool { return strings.Contains(strings.Join(args, " "), "more arguments") }
