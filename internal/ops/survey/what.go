// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
)

// Reserved is what [State.What] says of a reservation.
const Reserved = "reserved ahead"

// What says what a member is if it is not just a grant: what [Marks] say, or Reserved for the permits that a caller takes
// ahead of their return.
func (st *State) What(m Member) string {
	if what := Marks[m.Mark()]; what != "" {
		return what
	}
	for _, id := range st.reserving() {
		if string(redisson.Member(len(m.Raw) == 20, id, m.Permits)) == m.Raw {
			return Reserved
		}
	}
	return ""
}

var reservation = regexp.MustCompile(`([0-9a-f]{32}) (\d+) \d+`)

// reserving returns the ids of those that take permits ahead and whose time has not ended.
func (st *State) reserving() (ids []permit.ID) {
	for _, match := range reservation.FindAllStringSubmatch(st.ahead, -1) {
		if ends, err := strconv.ParseInt(match[2], 10, 64); err != nil || ends <= st.Time.UnixMilli() {
			continue
		}
		var id permit.ID
		_, _ = hex.Decode(id[:], []byte(match[1]))
		ids = append(ids, id)
	}
	return ids
}

// Granted returns when the permits of m were granted. It reports false for permits that nobody was granted: those of a
// tripwire, and those that were free when a cool-down blocked them.
func (m Member) Granted() (at time.Time, ok bool) {
	if t, _, block := blockOf(m.Raw); block {
		return time.UnixMilli(int64(t)), t > 0
	}
	return m.Time(), m.Mark() != 'w'
}

// LastGrant returns when the newest of the grants that were read was made. It reports false if there is none.
func (st *State) LastGrant() (newest time.Time, ok bool) {
	for _, m := range st.Members {
		if at, granted := m.Granted(); granted && (!ok || at.After(newest)) {
			newest, ok = at, true
		}
	}
	return newest, ok
}

// Memory returns how many bytes a key of the limiter of that name takes, as far as Redis estimates it from a few of
// its members.
func (s *Survey) Memory(ctx context.Context, name, key string) (int64, error) {
	return s.ofKey(ctx, name, func(rdb redis.Cmdable) *redis.IntCmd { return rdb.MemoryUsage(ctx, key) })
}

// Frequency returns the logarithmic counter of the accesses to a key of the limiter of that name, 255 at most. It
// reports false if Redis has none: its eviction policy is not one of LFU, it is older than 4.0, or the key does not exist.
func (s *Survey) Frequency(ctx context.Context, name, key string) (int64, bool, error) {
	n, err := s.ofKey(ctx, name, func(rdb redis.Cmdable) *redis.IntCmd { return rdb.ObjectFreq(ctx, key) })
	if errors.Is(err, redis.Nil) || err != nil && (strings.Contains(err.Error(), "LFU maxmemory policy is not selected") ||
		strings.Contains(err.Error(), "no such key") || strings.Contains(err.Error(), "unknown subcommand")) {
		return 0, false, nil
	}
	return n, err == nil, err
}

// ofKey asks the server that holds a limiter.
func (s *Survey) ofKey(ctx context.Context, name string, ask func(redis.Cmdable) *redis.IntCmd) (int64, error) {
	rdb, err := s.node(ctx, name)
	if err != nil {
		return 0, err
	}
	p := fromMasters(ctx, rdb)
	cmd := ask(p)
	if err := s.exec(ctx, p); err != nil {
		return 0, err
	}
	return cmd.Result()
}
