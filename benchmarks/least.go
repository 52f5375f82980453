// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const leastKey = "least"

//go:embed least.lua
var leastText string

// least is the floor of the format: the least script that Redisson's keys allow, on a client that gathers all calls into
// pipelines over one connection. It has none of the promises of this library.
type least struct {
	rdb    *redis.Client // for what is not measured
	client rueidis.Client
	script *rueidis.Lua
}

func newLeast(addr string, pool int) (*least, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, AlwaysPipelining: true,
		Dialer: net.Dialer{KeepAlive: -1}, // no PING each second while others are measured
	})
	if err != nil {
		return nil, err
	}
	return &least{newClient(addr, pool), client, rueidis.NewLuaScript(leastText)}, nil
}

func (l *least) about() about {
	return about{key: leastKey, title: "the least script of the format, on rueidis", version: moduleVersion("github.com/redis/rueidis"),
		keeps: true, pipelined: true}
}

func (l *least) open(ctx context.Context, j job) (session, error) {
	if err := writeRates(ctx, l.rdb, j); err != nil {
		return nil, err
	}
	keys := make([][]string, j.limiters)
	for i := range keys {
		name := j.name(i)
		keys[i] = []string{name, valueKey(name), permitsKey(name)}
	}
	return &goSession{
		ask: func(ctx context.Context, pick uint64) (int64, error) {
			reply, err := l.script.Exec(ctx, l.client, keys[pick%uint64(len(keys))], []string{seedMember()}).AsIntSlice()
			if err != nil {
				return 0, err
			}
			return permit(reply[2] == 0), nil
		},
		count: func(ctx context.Context) (int64, error) { return spentPermits(ctx, l.rdb, j) },
		in:    redissonKeys(j),
	}, nil
}

func (l *least) close() error {
	l.client.Close()
	return l.rdb.Close()
}
