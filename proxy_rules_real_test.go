// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A scriptRules is a hook that holds calls of scripts to the rules of Alibaba Cloud's proxy that the text of a script does
// not show: each has a key, and all keys are in one slot.
type scriptRules struct {
	redis.Hook
	t     *testing.T
	calls int
}

func (h *scriptRules) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.check(cmd); return next(ctx, cmd) }
}

func (h *scriptRules) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.check(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h *scriptRules) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *scriptRules) check(cmd redis.Cmder) {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return
	}
	h.calls++
	args := cmd.Args()
	keys, err := strconv.Atoi(fmt.Sprint(args[2]))
	require.NoError(h.t, err)
	require.Positive(h.t, keys, "%v", args[:3])
	tags := map[string]bool{}
	for _, key := range args[3 : 3+keys] {
		tags[hashTag(fmt.Sprint(key))] = true
	}
	require.Len(h.t, tags, 1, "%v", args[3:3+keys])
}

// hashTag returns the part of a key by which a cluster chooses its slot.
func hashTag(key string) string {
	if _, tail, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(tail, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// TestServersThatKnowLittle runs every operation on a server that rejects HELLO and CLIENT, as proxies and older servers do,
// with the options that docs/production.md gives for them, and with go-redis' own. go-redis sends HELLO in any case, and does
// without it when that is rejected.
func TestServersThatKnowLittle(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "INFO errorstats")
	for _, o := range []redis.Options{{Protocol: 2, DisableIdentity: true}, {}} {
		t.Run(fmt.Sprint("protocol ", o.Protocol), func(t *testing.T) {
			s := redistest.Start(t, "--rename-command", "HELLO", "", "--rename-command", "CLIENT", "", "--requirepass", "secret")
			o.Addr, o.Password = s.Addr(), "secret"
			rdb := redis.NewClient(&o)
			defer rdb.Close()
			rules := &scriptRules{t: t}
			rdb.AddHook(rules)
			ctx := context.Background()
			connected := must(rdb.Info(ctx, "errorstats").Result())(t)
			require.Equal(t, o.DisableIdentity, strings.Contains(connected, "errorstat_ERR:count=1\r"), connected)
			c := newClient(t, rdb)
			defer c.Close()
			for _, typ := range []RateType{Overall, PerClient} {
				everyOperation(t, ctx, c.RateLimiter("small"), typ)
				everyScript(t, ctx, c, rdb, [2]string{"a{b}", "{b}2"}, typ)
			}
			require.Greater(t, rules.calls, 20)
		})
	}
}
