// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/stretchr/testify/require"
)

// TestAlternativesAreWhole has limiters of which permits of one type are in use, with a hash that is broken or has the other type. Of
// the alternatives the one whose condition holds is done, and nothing else: the limiter is as it was, with the permits in use.
func TestAlternativesAreWhole(t *testing.T) {
	const java = "5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90"
	other := func(b *sickbed) int { return map[bool]int{true: 1, false: 0}[b.client == ""] }
	both := func(b *sickbed) {
		typ := ratelimiter.RateType(other(b))
		k := redisson.NewKeys(b.name, java)
		b.do("set", k.Value[typ], 9)
		b.do("zadd", k.Permits[typ], b.rdb.Time(b.Context()).Val().UnixMilli(), redisson.Member(false, redisson.RandomID(), 1))
	}
	for what, harm := range map[string]func(b *sickbed){
		"no interval, another type": func(b *sickbed) {
			b.do("hset", b.name, "type", other(b))
			b.do("hdel", b.name, "interval")
		},
		"rate x, another type": func(b *sickbed) { b.do("hset", b.name, "type", other(b), "rate", "x") },
		"no interval, keys of both types": func(b *sickbed) {
			both(b)
			b.do("hdel", b.name, "interval")
		},
		"no type, keys of both types": func(b *sickbed) {
			both(b)
			b.do("hdel", b.name, "type")
		},
		"type 7, keys of both types": func(b *sickbed) {
			both(b)
			b.do("hset", b.name, "type", 7)
		},
		"a list, keys of both types": func(b *sickbed) {
			both(b)
			b.do("del", b.name)
			b.do("rpush", b.name, "x")
		},
		"a list": func(b *sickbed) {
			b.do("del", b.name)
			b.do("rpush", b.name, "x")
		},
		"no hash, keys of both types": func(b *sickbed) {
			both(b)
			b.do("del", b.name)
		},
	} {
		for _, client := range []string{"", java} {
			for _, all := range []bool{false, true} {
				t.Run(strings.Join([]string{what, client, map[bool]string{true: "all"}[all]}, " "), func(t *testing.T) {
					b := newSickbed(t, client)
					b.all = all
					harm(b)
					holds, choice := "each client has its own permits", -1
					if client == "" {
						holds = "all clients share the permits"
					}
					list := b.findings()
					require.NotEmpty(t, list)
					f := list[0]
					require.Empty(t, f.Commands)
					for i, a := range f.Alternatives {
						if strings.Contains(a.If, holds) {
							require.Negative(t, choice, "two with one condition: %+v", f)
							choice = i
						}
						if !strings.Contains(f.Fix, "each client has") && strings.Contains(strings.Join(a.Commands, " "), "set-rate") {
							choice = i // there is one type only
						}
					}
					require.GreaterOrEqual(t, choice, 0, "%+v", f)
					b.follow(f, choice)
					b.requireHealed("Go", false)
				})
			}
		}
	}
}

// TestAdviceOfABrokenHash has limiters whose hash hides that their permits do not add up. The advice for the hash is all that is to be
// done: afterwards no more are granted than the rate, and nothing is found.
func TestAdviceOfABrokenHash(t *testing.T) {
	const java = "5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90"
	for what, pairs := range map[string][]any{"type 7": {"type", 7}, "keep-alive 1.5": {"keepAliveTime", "1.5"}} {
		for _, value := range []any{7, 1, "many", nil} {
			for _, client := range []string{"", java} {
				for _, who := range []string{"Go", "Java"} {
					for _, all := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s, value %v, %s %s all=%v", what, value, client, who, all), func(t *testing.T) {
							b := newSickbed(t, client)
							b.all = all
							if b.do(append([]any{"hset", b.name}, pairs...)...); value == nil {
								b.do("del", b.key(1))
							} else {
								b.do("set", b.key(1), value, "keepttl")
							}
							list := b.findings()
							require.NotEmpty(t, list)
							require.Equal(t, "malformed", list[0].Check)
							require.NotEmpty(t, list[0].Commands)
							b.follow(list[0], 0)
							require.Empty(t, b.findings())
							b.requireHealed(who, false)
						})
					}
				}
			}
		}
	}
}

// TestAdvisedSetRateIsDone has hashes that are broken, beside keys and fields of other programs, which rrl set-rate does not write to. No
// command is advised that would end with its error.
func TestAdvisedSetRateIsDone(t *testing.T) {
	const java = "5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90"
	hset := func(b *sickbed) { b.do("hset", b.name, "team", "a") }
	done := 0
	for hash, harm := range map[string]func(b *sickbed){
		"no type":     func(b *sickbed) { b.do("hdel", b.name, "type") },
		"no rate":     func(b *sickbed) { b.do("hdel", b.name, "rate") },
		"interval -1": func(b *sickbed) { b.do("hset", b.name, "interval", -1) },
		"a string":    func(b *sickbed) { b.do("set", b.name, "x") },
		"no hash":     func(b *sickbed) { b.do("del", b.name) },
	} {
		for beside, others := range map[string]func(b *sickbed){
			"a field":        func(*sickbed) {},
			"a text":         func(b *sickbed) { b.do("set", redisson.NewKeys(b.name, "").Value[0], "hello") },
			"a number":       func(b *sickbed) { b.do("set", redisson.NewKeys(b.name, "").Value[0], 7) },
			"a set":          func(b *sickbed) { b.do("zadd", redisson.NewKeys(b.name, "").Permits[0], 1, "alice") },
			"a list":         func(b *sickbed) { b.do("rpush", redisson.NewKeys(b.name, "").Permits[0], "x") },
			"a client's set": func(b *sickbed) { b.do("zadd", redisson.NewKeys(b.name, "").Permits[1]+"9", 1, "alice") },
		} {
			for _, client := range []string{"", java} {
				t.Run(strings.Join([]string{hash, beside, client}, " "), func(t *testing.T) {
					for i, n := 0, 1; i < n; i++ {
						b := newSickbed(t, client)
						b.lenient = true
						hset(b)
						others(b)
						harm(b)
						_, out, _ := b.run("doctor", b.name, "--json", "--sample", "0")
						if out == "" || !strings.Contains(out, "set-rate") {
							return
						}
						f := b.findings()[0]
						n = len(f.Alternatives)
						b.follow(f, i)
						done++
					}
				})
			}
		}
	}
	require.Positive(t, done)
}
