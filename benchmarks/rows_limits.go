// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter/limit"
)

// limitPlenty is plenty for the limiters of package limit. They count in integers of up to 2^52, so that more permits
// an hour would be too many for some of them.
const limitPlenty = 1_000_000

// sharedLimit is a limiter of package limit in Redis, on the clock of Redis.
type sharedLimit struct {
	limitKind
	rdb     redis.UniversalClient
	endable bool // see ours
	unkept  bool // Redis does not remember calls
}

func newLimits(addr string, pool int) []contestant {
	var list []contestant
	for _, k := range limitKinds() {
		list = append(list, &sharedLimit{limitKind: k, rdb: newClient(addr, pool)})
		if k.key == limitGCRAKey {
			list = append(list, &sharedLimit{limitKind: k, rdb: newClient(addr, pool), unkept: true},
				&sharedLimit{limitKind: k, rdb: newClient(addr, pool), endable: true})
		}
	}
	return list
}

func (l *sharedLimit) on(rdb redis.UniversalClient) (contestant, error) {
	other := *l
	other.rdb = rdb
	return &other, nil
}

func (l *sharedLimit) about() about {
	a := about{key: l.key, title: l.title, version: "this commit", limit: true, ahead: l.ahead}
	if l.unkept {
		a.key, a.title = l.key+"-without-replay", l.title+", WithoutReplay"
	}
	if l.endable {
		a.key, a.title, a.again = l.key+"-endable", l.title+", contexts that can end", true
	}
	return a
}

func (l *sharedLimit) open(ctx context.Context, j job) (session, error) {
	opened, err := redisNow(ctx, l.rdb)
	if err != nil {
		return nil, err
	}
	j.permits = min(j.permits, limitPlenty)
	var opts []limit.Option
	if l.unkept {
		opts = append(opts, limit.WithoutReplay())
	}
	all, err := limit.NewShared(l.rdb, j.prefix, l.algorithm(j), opts...)
	if err != nil {
		return nil, err
	}
	keys := []*limit.Shared{all}
	if j.limiters > 1 {
		keys = make([]*limit.Shared, j.limiters)
		for i := range keys {
			keys[i] = all.For(strconv.Itoa(i))
		}
	}
	patience := turnOfLast(j)
	return &goSession{
		ask: func(ctx context.Context, pick uint64) (int64, error) {
			if !l.endable {
				ctx = context.Background()
			}
			s := keys[pick%uint64(len(keys))]
			if l.reserves {
				r, err := s.Reserve(ctx, 1, patience)
				return permit(r.Granted), err
			}
			r, err := s.Allow(ctx, 1)
			return permit(r.Granted), err
		},
		count: func(ctx context.Context) (int64, error) {
			states, err := l.states(ctx, keys)
			if err != nil {
				return 0, err
			}
			total := int64(0)
			for _, s := range states {
				n, err := l.granted(s, j, opened)
				if err != nil {
					return 0, err
				}
				total += n
			}
			return total, nil
		},
		in: l.keys(keys[0]),
	}, nil
}

// keys returns the keys that the limiter uses.
func (l *sharedLimit) keys(s *limit.Shared) []string {
	return s.Keys()
}

// turnOfLast returns the longest wait for which a reservation of the last permit is granted and one behind it is
// rejected: half the time of a permit separates their turns.
func turnOfLast(j job) time.Duration {
	permits, interval := j.refill()
	turn := interval / time.Duration(permits)
	patience := time.Duration(j.permits)*turn - turn/2
	if j.flows {
		patience *= 2 // a cold SmoothWarmingUp takes up to twice the time
	}
	return patience
}

// states reads the state of the limiters that had a request.
func (l *sharedLimit) states(ctx context.Context, keys []*limit.Shared) ([]limitState, error) {
	const page = 1000
	var states []limitState
	for from := 0; from < len(keys); from += page {
		part := keys[from:min(from+page, len(keys))]
		commands, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, s := range part {
				if l.logs {
					p.ZRange(ctx, s.Keys()[0], 0, -1)
				} else {
					p.Get(ctx, s.Keys()[0])
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		for _, c := range commands {
			var s limitState
			switch c := c.(type) {
			case *redis.StringSliceCmd:
				s.members = c.Val()
			case *redis.StringCmd:
				state, _, _ := strings.Cut(c.Val(), ";")
				s.fields = map[string]string{}
				names := strings.Fields(l.keeps)
				for i, word := range strings.Fields(state) {
					s.fields[names[i]] = word
				}
			}
			if len(s.members)+len(s.fields) > 0 {
				states = append(states, s)
			}
		}
	}
	return states, nil
}

func (l *sharedLimit) close() error { return l.rdb.Close() }
