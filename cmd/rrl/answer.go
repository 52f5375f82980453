// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"maps"
	"time"

	"github.com/goredisson/ratelimiter"
)

// An answer is the body of a response of the endpoint, whatever its status.
type answer struct {
	Num         int64      `json:"num,omitempty"`
	Granted     bool       `json:"granted"`
	WaitedMS    int64      `json:"waited_ms"`
	Available   *int64     `json:"available,omitempty"` // permits left after the request
	RetryAfterS int        `json:"retry_after_s,omitempty"`
	Error       string     `json:"error,omitempty"`
	Redis       *redisKeys `json:"redis,omitempty"` // after the request
}

// redisKeys is the content of the limiter's three keys.
type redisKeys struct {
	TimeMS  int64      `json:"time_ms"` // when they were read, by the limiter's clock
	Hash    hashKey    `json:"hash"`
	Value   valueKey   `json:"value"`
	Permits permitsKey `json:"permits"`
}

type hashKey struct {
	Key    string            `json:"key"`
	Fields map[string]string `json:"fields"`
}

type valueKey struct {
	Key   string  `json:"key"`
	Value *string `json:"value"` // null if there is no such key
}

type permitsKey struct {
	Key     string   `json:"key"`
	Count   int64    `json:"count"`
	Members []member `json:"members"` // newest first
}

// A member is one grant. Its raw bytes identify it.
type member struct {
	Permits   uint32 `json:"permits"`
	GrantedMS int64  `json:"granted_ms"` // by the limiter's clock
	Expired   bool   `json:"expired"`
	Format    string `json:"format"`
	Bytes     string `json:"bytes"`
}

func (m member) granted() time.Time { return time.UnixMilli(m.GrantedMS) }

func keysOf(s ratelimiter.State) *redisKeys {
	k := &redisKeys{
		TimeMS:  s.Time.UnixMilli(),
		Hash:    hashKey{Key: s.HashKey, Fields: maps.Clone(s.Fields)},
		Value:   valueKey{Key: s.ValueKey},
		Permits: permitsKey{Key: s.PermitsKey, Count: s.MemberCount, Members: make([]member, 0, len(s.Members))},
	}
	if s.HasValue {
		k.Value.Value = &s.Value
	}
	for _, m := range s.Members {
		k.Permits.Members = append(k.Permits.Members, member{
			Permits:   m.Permits,
			GrantedMS: m.Time.UnixMilli(),
			Expired:   m.Expired,
			Format:    m.Format.String(),
			Bytes:     hex.EncodeToString(m.Raw),
		})
	}
	return k
}

// An exchange is one request to the endpoint and its response. Its times count from the start of the
// demo.
type exchange struct {
	Client  string
	Num     string        // as asked for
	Timeout time.Duration // as asked for; 0 for the endpoint's default
	Asked   time.Duration
	Done    time.Duration
	Status  int // 0 if there was no response
	Answer  answer
	Err     error // why there was no response
}

func (e exchange) waited() time.Duration { return e.Done - e.Asked }
