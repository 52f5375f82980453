// SPDX-License-Identifier: Apache-2.0

// Package testworld gives tests processes that share limiters in Redis. The limiters are those of package redisson,
// with the scripts that package ratelimiter sends. The calls that a [Process] makes can be delayed, rejected and lost,
// and what Redis grants is entered in a ledger.
package testworld

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// A TB is a test. It is told when an Engine breaks the rules of its backend.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A Server holds limiters that several processes share.
type Server struct {
	Redis  *redis.Client
	t      TB
	prefix string // of the names in Redis
	admin  *redisson.Conn

	mu      sync.Mutex
	books   map[book]*ledger
	rates   map[string]permit.Rate
	clients int
}

// scripts are those that package ratelimiter sends. A test imports that package to load them.
var scripts = sync.OnceValue(func() *redisson.Scripts {
	s := new(redisson.Scripts)
	for _, loaded := range dispatch.Loaded() {
		name := ""
		for word := range strings.SplitSeq(loaded.Name, "_") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		if field := reflect.ValueOf(s).Elem().FieldByName(name); field.IsValid() {
			field.Set(reflect.ValueOf(redisson.NewScript(loaded, redisson.ResendAlways)))
		}
	}
	return s
})

// New returns a Server without limiters in the Redis of rdb, whose keys begin with prefix.
func New(t TB, rdb *redis.Client, prefix string) *Server {
	s := &Server{Redis: rdb, t: t, prefix: prefix, books: map[book]*ledger{}, rates: map[string]permit.Rate{}}
	s.admin = s.conn()
	return s
}

func (s *Server) conn() *redisson.Conn {
	return redisson.NewConn(s.Redis, redisson.Config{
		Scripts:     scripts(),
		ClientClock: !redistest.TTLsAreVirtual(), // a real server does not keep the time of a bubble
		SharedClock: true,
		KeyTTL:      time.Hour,
	})
}

func (s *Server) limiter(c *redisson.Conn, key, client string) *redisson.Limiter {
	l := c.Limiter(s.prefix+key, key, client)
	return &l
}

func client(n int) string { return fmt.Sprint("client-", n) }

// of returns a limiter as the n-th process, or nobody, reaches it.
func (s *Server) of(key string, n int) *redisson.Limiter { return s.limiter(s.admin, key, client(n)) }

// Keys returns the keys of a limiter, for tests that spoil them.
func (s *Server) Keys(key string) redisson.Keys { return s.of(key, 0).Keys }

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v", err)
	}
}

// SetRate sets the rate of a limiter and frees all of its permits.
func (s *Server) SetRate(key string, r permit.Rate) {
	s.t.Helper()
	s.Delete(key)
	_, err := s.of(key, 0).SetRate(r, false, false).Run(context.Background())
	s.must(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rates[key] = r
}

func (s *Server) rate(key string) permit.Rate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rates[key]
}

// Delete deletes a limiter.
func (s *Server) Delete(key string) {
	s.t.Helper()
	s.mu.Lock()
	clients, known := s.clients, s.rates[key] != permit.Rate{}
	for b := range s.books {
		if b.key == key {
			delete(s.books, b)
		}
	}
	delete(s.rates, key)
	s.mu.Unlock()
	for n := 0; n <= clients && known; n++ {
		_, err := s.of(key, n).Delete().Run(context.Background())
		s.must(err)
	}
}

// Spoil makes the rate of a limiter unreadable.
func (s *Server) Spoil(key string) { s.field(key, "spoilt") }

// Unspoil undoes Spoil.
func (s *Server) Unspoil(key string) { s.field(key, s.rate(key).Permits) }

func (s *Server) field(key string, rate any) {
	s.t.Helper()
	s.must(s.Redis.HSet(context.Background(), s.Keys(key).Hash, "rate", rate).Err())
}

// CoolDown makes an Overall limiter grant nothing before until, and then gives its permits back over reopen.
func (s *Server) CoolDown(key string, until time.Time, reopen time.Duration) {
	s.t.Helper()
	_, err := s.of(key, 0).CoolDown(time.Until(until), reopen).Run(context.Background())
	s.must(err)
}

// Release returns permits of an Overall limiter.
func (s *Server) Release(key string, permits int64) {
	s.t.Helper()
	_, err := s.of(key, 0).Release(permits).Run(context.Background())
	s.must(err)
	s.ledger(key, "").release(permits)
}

// Available returns the free permits of an Overall limiter.
func (s *Server) Available(key string) int64 {
	s.t.Helper()
	n, err := s.of(key, 0).Available().Run(context.Background())
	s.must(err)
	return n
}

// Grants returns the grants of a limiter that are in use, oldest first, as they are in Redis.
func (s *Server) Grants(key string) (list []Grant) {
	s.t.Helper()
	s.mu.Lock()
	clients, r := s.clients, s.rates[key]
	s.mu.Unlock()
	if r.Type == permit.Overall {
		clients = 0
	}
	for n := range clients + 1 {
		members, err := s.Redis.ZRangeWithScores(context.Background(), s.of(key, n).Keys.Permits[r.Type], 0, -1).Result()
		s.must(err)
		for _, z := range members {
			raw := z.Member.(string)
			at := time.UnixMilli(int64(z.Score))
			if !at.After(now().Add(-r.Interval)) || strings.HasPrefix(raw, "\x10~") {
				continue // expired, a tripwire, or a block of a cool-down
			}
			b := raw[len(raw)-4:]
			list = append(list, Grant{At: at, Permits: int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16 | int64(b[3])<<24})
		}
	}
	slices.SortStableFunc(list, func(a, b Grant) int { return a.At.Compare(b.At) })
	return list
}

// Used returns the permits in use, summed over all processes, as they are in Redis.
func (s *Server) Used(key string) (n int64) {
	s.t.Helper()
	for _, g := range s.Grants(key) {
		n += g.Permits
	}
	return n
}

// now returns the time as Redis has it, which counts whole milliseconds.
func now() time.Time { return time.UnixMilli(time.Now().UnixMilli()) }
