// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/redis/go-redis/v9"
)

// needs returns the commands that a limiter needs of an ACL, as docs/design/protocol.md lists them, with arguments that they
// accept.
func needs(name string, divided bool) [][]any {
	k := redisson.NewKeys(name, "").Of(permit.Overall)
	hash, value, set := k[0], k[1], k[2]
	sha := strings.Repeat("0", 40)
	list := [][]any{
		{"evalsha", sha, 3, hash, value, set}, {"eval", "return 1", 3, hash, value, set},
		{"hmget", hash, "f"}, {"hget", hash, "f"}, {"hset", hash, "f", "v"}, {"hsetnx", hash, "f", "v"}, {"hdel", hash, "f"},
		{"hlen", hash}, {"hgetall", hash}, {"get", value}, {"set", value, "1"}, {"incrby", value, 1},
		{"exists", hash}, {"unlink", value}, {"pexpire", set, 1}, {"pttl", set}, {"persist", set}, {"time"},
		{"zadd", set, 1, "m"}, {"zrem", set, "m"}, {"zcard", set}, {"zcount", set, 0, 1}, {"zrank", set, "m"}, {"zscore", set, "m"},
		{"zrange", set, 0, 1}, {"zrevrangebyscore", set, 1, 0}, {"zrevrange", set, 0, 1}, {"zrangebyscore", set, 0, 1},
		{"zremrangebyrank", set, 0, 1}, {"zremrangebyscore", set, 0, 1},
		{"hello"}, {"ping"},
	}
	if divided {
		list = append(list, []any{"cluster", "slots"}, []any{"command"})
	}
	return list
}

// Access asks each server, by ACL DRYRUN, which of the commands that a limiter needs a user of the application may not
// run. If name is not empty, it also looks at the keys of that limiter. Nothing is run.
func (d *Doctor) Access(ctx context.Context, user, name string) (*Report, error) {
	r := &Report{Findings: []Finding{}, Skipped: []Skip{}}
	nodes, err := d.nodes(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		commands, keys, err := rejectedBy(ctx, node, user, name, d.Survey.Divided())
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.skip(Skip{Check: "acl", Node: node.Addr}, false, fmt.Errorf("ACL DRYRUN: %w", err))
			continue
		}
		var found []string
		fix := []string{"redis-cli", "acl", "setuser", user}
		if len(commands) > 0 {
			found = append(found, "may not run "+strings.Join(commands, ", "))
			for _, c := range commands {
				fix = append(fix, "+"+c)
			}
		}
		if len(keys) > 0 && name != "" {
			found = append(found, fmt.Sprintf("may not access %q", keys))
			for _, k := range keys {
				fix = append(fix, "~"+k)
			}
		}
		if len(found) == 0 {
			continue
		}
		f := finding("acl", Critical, say("the user %q %s", user, strings.Join(found, ", and ")), word(Shell(fix...)))
		f.Limiter, f.Node = name, node.Addr
		r.Findings = append(r.Findings, f)
	}
	return r, nil
}

// rejectedBy returns the commands and the keys that a server rejects a user.
func rejectedBy(ctx context.Context, node survey.Node, user, name string, divided bool) (commands, keys []string, err error) {
	list := needs(name, divided)
	p := node.Client.Pipeline()
	replies := make([]*redis.Cmd, len(list))
	for i, command := range list {
		replies[i] = p.Do(ctx, append([]any{"acl", "dryrun", user}, command...)...)
	}
	_, _ = p.Exec(ctx) // each reply has its own error
	for i, command := range list {
		text, err := replies[i].Text()
		if err != nil {
			return nil, nil, err
		}
		name := fmt.Sprint(command[0])
		if name == "cluster" {
			name = "cluster|slots"
		}
		switch key, isKey := rejectedKey(text); {
		case text == "OK":
		case !isKey:
			commands = append(commands, name)
		case !slices.Contains(keys, key):
			keys = append(keys, key)
		}
	}
	return commands, keys, nil
}

// rejectedKey returns the key that a reply of ACL DRYRUN is about. It reports false if it is about the command.
func rejectedKey(text string) (string, bool) {
	_, rest, ok := strings.Cut(text, "access the '")
	if !ok {
		return "", false
	}
	return strings.TrimSuffix(strings.TrimSuffix(rest, "key"), "' "), true
}
