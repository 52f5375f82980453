// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

const baselineKey = "script"

// redissonScript is the baseline: the acquire script that Redisson sends, through plain go-redis, one
// EVALSHA an acquire. Its text comes from the wire; see capture.go.
type redissonScript struct {
	rdb    *redis.Client
	script *redis.Script
	text   string
	client string // Redisson's client id
}

func newRedissonScript(addr string, pool int, text string) *redissonScript {
	return &redissonScript{newClient(addr, pool), redis.NewScript(text), text, "00000000-0000-0000-0000-000000000000"}
}

func (s *redissonScript) about() about {
	return about{key: baselineKey, title: "Redisson's script, plain go-redis", version: newestRedisson, keeps: true}
}

func (s *redissonScript) open(ctx context.Context, j job) (session, error) {
	if err := writeRates(ctx, s.rdb, j); err != nil {
		return nil, err
	}
	if err := s.script.Load(ctx, s.rdb).Err(); err != nil {
		return nil, err
	}
	keys := make([][]string, j.limiters)
	for i := range keys {
		keys[i] = s.keys(j.name(i))
	}
	return &goSession{
		ask: func(ctx context.Context, pick uint64) (int64, error) {
			wait, err := s.acquire(ctx, keys[pick%uint64(len(keys))])
			return permit(wait == 0), err
		},
		count: func(ctx context.Context) (int64, error) { return spentPermits(ctx, s.rdb, j) },
		in:    redissonKeys(j),
	}, nil
}

func (s *redissonScript) keys(name string) []string {
	value, permits := valueKey(name), permitsKey(name)
	return []string{name, value, value + ":" + s.client, permits, permits + ":" + s.client}
}

// acquire requests one permit and returns how long to wait for it; 0 if it is granted.
func (s *redissonScript) acquire(ctx context.Context, keys []string) (time.Duration, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	wait, err := s.script.EvalSha(ctx, s.rdb, keys, 1, time.Now().UnixMilli(), random[:]).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err == nil && wait <= 0 {
		wait = 1
	}
	return time.Duration(wait) * time.Millisecond, err
}

// wait does what Redisson's acquire does: it asks, sleeps as long as it is told, and asks again.
func (s *redissonScript) wait(ctx context.Context, name string, callers int, stagger time.Duration) ([]time.Time, error) {
	keys := s.keys(name)
	if err := s.script.Load(ctx, s.rdb).Err(); err != nil {
		return nil, err
	}
	return arrive(ctx, callers, stagger, func(ctx context.Context) error {
		for {
			wait, err := s.acquire(ctx, keys)
			if err != nil || wait == 0 {
				return err
			}
			if err := retry.Sleep(ctx, wait); err != nil {
				return err
			}
		}
	})
}

func (s *redissonScript) close() error { return s.rdb.Close() }

// checkLayout checks that the captured script has its KEYS and ARGV in the order that keys and acquire use.
func checkLayout(name string, permits int64, keys, args []string) error {
	value, set := valueKey(name), permitsKey(name)
	if len(keys) != 5 || keys[0] != name || keys[1] != value || keys[3] != set ||
		!strings.HasPrefix(keys[2], value+":") || !strings.HasPrefix(keys[4], set+":") {
		return fmt.Errorf("the KEYS of Redisson's script are %q", keys)
	}
	if len(args) != 3 || args[0] != fmt.Sprint(permits) || len(args[1]) != 13 || len(args[2]) != 16 {
		return fmt.Errorf("the ARGV of Redisson's script are %q", args)
	}
	return nil
}
