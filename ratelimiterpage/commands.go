// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/goredisson/ratelimiter/internal/doctor"
	"github.com/redis/go-redis/v9"
)

// WithRedisURL sets the URL of the Redis in the commands that the page offers to copy, as rrl takes it with --redis. A user
// and a password in it are left out. The default is made of the options of the client: of a single server, or of a cluster.
// For others, such as a failover client, the commands name no Redis, and rrl takes that of REDIS_URL.
func WithRedisURL(raw string) Option { return func(c *config) { c.url = withoutUser(raw) } }

// withoutUser returns a URL without anything that is secret, or nothing if it cannot be parsed.
func withoutUser(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return ""
	}
	u.User = nil
	q := u.Query()
	for key := range q {
		if strings.Contains(key, "user") || strings.Contains(key, "password") {
			q.Del(key)
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// urlOf returns the URL of the Redis that a client uses, or nothing if its options do not tell.
func urlOf(rdb redis.UniversalClient) string {
	secure := func(tls bool) string {
		if tls {
			return "rediss"
		}
		return "redis"
	}
	switch rdb := rdb.(type) {
	case interface{ Options() *redis.Options }:
		switch o := rdb.Options(); {
		case o.Network == "unix":
			return fmt.Sprintf("unix://%s?db=%d", o.Addr, o.DB)
		case strings.Contains(o.Addr, ":"): // a failover client has none
			return fmt.Sprintf("%s://%s/%d", secure(o.TLSConfig != nil), o.Addr, o.DB)
		}
	case interface{ Options() *redis.ClusterOptions }:
		if o := rdb.Options(); len(o.Addrs) > 0 {
			return fmt.Sprintf("%s+cluster://%s", secure(o.TLSConfig != nil), o.Addrs[0])
		}
	}
	return ""
}

// isCommand reports whether what a finding advises is one command that somebody can copy to a terminal, and not a sentence.
func isCommand(text string) bool {
	if !strings.HasPrefix(text, "rrl ") && !strings.HasPrefix(text, "redis-cli ") {
		return false
	}
	for _, part := range []string{", ", "; ", " says ", " shows ", "…"} {
		if strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// command returns a command of rrl or redis-cli with the Redis of this page, or that of one of its nodes. What is no command stays
// as it is.
func (h *Handler) command(text, node string) string {
	if !isCommand(text) || h.url == "" {
		return text
	}
	program, rest, _ := strings.Cut(text, " ")
	if program == "rrl" {
		name, rest, _ := strings.Cut(rest, " ")
		return strings.TrimSpace("rrl " + name + " --redis " + doctor.ShellQuote(h.url) + " " + rest)
	}
	at, cluster := strings.Replace(h.url, "+cluster://", "://", 1), ""
	if h.survey.Divided() {
		cluster = "-c "
	}
	if scheme, _, ok := strings.Cut(at, "://"); ok && node != "" {
		at, cluster = scheme+"://"+node, ""
	}
	if !strings.HasPrefix(at, "redis://") && !strings.HasPrefix(at, "rediss://") || strings.HasPrefix(rest, "--") {
		return text
	}
	return "redis-cli " + cluster + "-u " + doctor.ShellQuote(at) + " " + rest
}
