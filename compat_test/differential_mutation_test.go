// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// mutations are faults in our scripts that no other line makes up for. The run must find each of them.
var mutations = []struct {
	name, file, old, new string
	version              string // the version that shows it, the newest when empty
}{
	{"a grant expires a millisecond late", "acquire",
		"string.format('%d', now - interval)", "string.format('%d', now - interval - 1)", ""},
	{"a grant takes one permit, whatever was asked for", "acquire",
		"redis.pcall('INCRBY', KEYS[2], expired == 0 and granted == 1 and '-' .. ARGV[2] or freed - taken)", "redis.pcall('INCRBY', KEYS[2], freed - granted)", ""},
	{"a wait is a millisecond long", "acquire",
		"math.max(1, at - now)", "math.max(1, at + 1 - now)", ""},
	{"the limiter's TTL is not given to its grants", "acquire",
		"redis.call('PEXPIRE', KEYS[3], ttl)", "redis.call('PTTL', KEYS[3])", ""},
	{"the keep-alive is not refreshed", "acquire",
		"redis.call('PEXPIRE', KEYS[1], stay)", "redis.call('PTTL', KEYS[1])", ""},
	{"old readers do not find the permits", "acquire",
		"'NX', string.format('%d', now), member) == 0", "'NX', now, string.sub(member, 1, 4) .. 'some' .. string.sub(member, 9)) == 0", "3.15.5"},
	{"a request may exceed the rate", "acquire",
		"if permits > rate", "if permits > rate + 1", ""},
	{"release gives back the oldest", "release",
		"redis.call('ZREVRANGE', KEYS[3], 0,", "redis.call('ZRANGE', KEYS[3], 0,", ""},
	{"a new rate keeps a grant that has expired", "set_rate",
		"'-inf', string.format('%.0f', now - interval))", "'-inf', string.format('%.0f', now - interval - 1))", ""},
	{"updateRate makes a limiter", "set_rate",
		"if not was and says", "if false and says", ""},
	{"a lower rate leaves other clients more", "set_rate",
		"or old > rate) and 1 or 0", "or old > rate) and 0 or 0", ""},
	{"availablePermits counts a grant that expires in a millisecond", "available",
		"'-inf', string.format('%.0f', now - interval))", "'-inf', string.format('%.0f', now - interval + 1))", ""},
}

// mutationLimit is the number of operations after which a mutation must be found.
const mutationLimit = 20_000

// TestDifferentialCatchesMutations tests the comparison itself: our scripts pass as they are, and fail with any one
// of the faults above.
func TestDifferentialCatchesMutations(t *testing.T) {
	seed := newTwinSeed(t)
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed.run)
	files := redistest.Must(filepath.Glob("../scripts/*.lua"))(t)
	sound := map[string]string{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		sound[name] = dispatch.Source(os.DirFS(".."), name)
	}
	jars := map[string]*jar{}
	for _, v := range twinVersions() {
		if !v.newest {
			jars[v.name] = newJar(t, v)
		}
	}
	newest := jars[newestListed().name]
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx := context.Background()
		play := func(j *jar, texts map[string]string, operations int) (done int, err error) {
			prefix := redistest.Key(t)
			for world := 0; done < operations && err == nil; world++ {
				rng := rand.New(rand.NewPCG(seed.run, uint64(world)))
				w := newTwinWorld(rng, rdb, j, fmt.Sprintf("%s%d", prefix, world), true)
				w.us = newScripts(rdb, texts, w)
				err = w.play(ctx, worldLength)
				done += w.operations
			}
			return done, err
		}
		for _, j := range jars {
			require.NoError(t, j.load(ctx, rdb))
			_, err := play(j, sound, 3000)
			require.NoError(t, err, "without a mutation")
		}
		for _, m := range mutations {
			j := newest
			if m.version != "" {
				j = jars[m.version]
			}
			require.Equal(t, 1, strings.Count(sound[m.file], m.old), "%s: the line to change is not in %s.lua: %s", m.name, m.file, m.old)
			texts := maps.Clone(sound)
			texts[m.file] = strings.Replace(sound[m.file], m.old, m.new, 1)
			done, err := play(j, texts, mutationLimit)
			require.Error(t, err, "not noticed in %d operations: %s", done, m.name)
			t.Logf("%s: caught by operation %d against %s: %s", m.name, done, j.version, strings.SplitN(err.Error(), "\n", 3)[1])
		}
	})
}

// scripts is our side with any script texts. It knows the KEYS and ARGV of the scripts' headers, and as much of the
// library's loop as small sets need.
type scripts struct {
	rdb       *redis.Client
	texts     map[string]*redis.Script
	keys      []string // in the order of a twinState
	memory    [2]twinMemory
	clientTTL int64
}

func newScripts(rdb *redis.Client, texts map[string]string, w *twinWorld) *scripts {
	s := &scripts{rdb: rdb, texts: map[string]*redis.Script{}, keys: w.keys[0], clientTTL: w.clientTTL}
	for name, text := range texts {
		s.texts[name] = redis.NewScript(text)
	}
	s.memory = [2]twinMemory{{typ: "0"}, {typ: "0"}}
	return s
}

func (s *scripts) do(ctx context.Context, op twinOp) twinAnswer {
	if op.outOfRange() {
		return twinAnswer{word: invalidArgument}
	}
	memory, now := &s.memory[op.client], time.Now().UnixMilli()
	switch op.name {
	case "tryAcquire":
		return s.acquire(ctx, op, now)
	case "availablePermits":
		return s.typed(ctx, memory, op, "available", func(typ string) []any { return []any{typ, now, "", 0, 0} }, func(r []int64) twinAnswer {
			return twinAnswer{word: fmt.Sprint(r[2])}
		})
	case "release":
		return s.typed(ctx, memory, op, "release", func(typ string) []any { return []any{typ, op.permits, s.clientTTL, now} }, func([]int64) twinAnswer {
			return twinAnswer{word: "null"}
		})
	case "trySetRate":
		return truth(s.run(ctx, "try_set_rate", s.keys[:1], op.rate, op.interval, op.keepAlive, op.typ, 0))
	case "setRate", "setRateArgs", "updateRate":
		words := ""
		if op.name == "updateRate" {
			words = "exists"
		}
		if op.keep {
			words += " keep"
		}
		other := map[string]string{"0": "1", "1": "0"}[op.typ]
		keys := append(s.of(op.typ, op.client), s.of(other, op.client)[1:]...)
		r, err := s.run(ctx, "set_rate", keys, op.rate, op.interval, op.keepAlive, op.typ, now, words, 0)
		if err == nil && len(r) == 3 && r[2] == 1 {
			err = s.fit(ctx, 1-op.client)
		}
		answer := truth(r, err)
		if answer.word == "true" && op.name != "updateRate" {
			answer.word = "null"
		}
		memory.forget(twinCase{op: op}, answer)
		return answer
	}
	keys := append(s.of("0", op.client), s.of("1", op.client)[1:]...)
	switch op.name {
	case "expire":
		return truth(s.run(ctx, "expire", keys, op.ttl, "", ""))
	case "clearExpire":
		return truth(s.run(ctx, "clear_expire", keys))
	}
	return truth(s.run(ctx, op.name, append(keys, s.keys[0]+":ahead", s.keys[0]+":ahead:"))) // delete
}

// fit makes the permits of another client fit the rate.
func (s *scripts) fit(ctx context.Context, client int) error {
	_, err := s.run(ctx, "heal", s.of("1", client), "1", "check lowered", time.Now().UnixMilli(), setBound)
	return err
}

// of returns the keys of a type: hash, value and permits.
func (s *scripts) of(typ string, client int) []string {
	slot := slotOf(typ, client)
	return []string{s.keys[0], s.keys[1+2*slot], s.keys[2+2*slot]}
}

func (s *scripts) run(ctx context.Context, name string, keys []string, args ...any) ([]int64, error) {
	cmd := s.texts[name].Run(ctx, s.rdb, keys, args...)
	if n, err := cmd.Int64(); err == nil {
		return []int64{n}, nil
	}
	return cmd.Int64Slice()
}

func truth(r []int64, err error) twinAnswer {
	if err != nil {
		return twinAnswer{word: "!" + err.Error()}
	}
	return twinAnswer{word: fmt.Sprint(r[0] == 1)}
}

// typed runs the script of an operation, and runs it again when the hash has another type.
func (s *scripts) typed(ctx context.Context, m *twinMemory, op twinOp, name string,
	args func(typ string) []any, answer func([]int64) twinAnswer,
) twinAnswer {
	for {
		r, err := s.run(ctx, name, s.of(m.typ, op.client), args(m.typ)...)
		switch {
		case err != nil:
			return twinAnswer{word: "!" + err.Error()}
		case r[0] == 0 || r[0] == 6: // 6: acquire leaves it to acquire_rest
			return answer(r)
		case r[0] == 1:
			return twinAnswer{word: notInitialized}
		case r[0] == 2:
			*m = twinMemory{typ: fmt.Sprint(r[1])}
		case r[0] == 3:
			return twinAnswer{word: exceedsRate}
		default:
			return twinAnswer{word: fmt.Sprint("!", r)}
		}
	}
}

func (s *scripts) acquire(ctx context.Context, op twinOp, now int64) twinAnswer {
	memory, words := &s.memory[op.client], ""
	for range 10 {
		var r []int64
		id := fmt.Sprintf("%08x", rand.Uint32())
		p := string(binary.LittleEndian.AppendUint32(nil, uint32(op.permits)))
		member := "\x10" + id[:3] + p + "\x00" + id + p
		read := func(reply []int64) twinAnswer {
			r = reply
			return twinAnswer{granted, r[2], r[3]}
		}
		unusual := words != ""
		var answer twinAnswer
		if !unusual {
			answer = s.typed(ctx, memory, op, "acquire", func(typ string) []any {
				return []any{typ, op.permits, 1, member, 0, now, s.clientTTL}
			}, func(reply []int64) twinAnswer {
				switch len(reply) {
				case 1:
					unusual = true
					return twinAnswer{}
				case 7:
					return read([]int64{0, 1, 0, reply[1], 0, 0, reply[4], 0, 0})
				}
				return read([]int64{0, reply[8], reply[7], reply[1], 0, 0, reply[4], 0, 0})
			})
		}
		if unusual {
			answer = s.typed(ctx, memory, op, "acquire_rest", func(typ string) []any {
				return []any{typ, op.permits, 1, member, words, now, "", s.clientTTL, ""}
			}, read)
		}
		switch {
		case r == nil || r[1] == 1:
			return answer
		case r[8] == 1: // the rest is to follow at once
		case r[8] == 2 && !strings.Contains(words, "healed"):
			if _, err := s.run(ctx, "heal", s.of(memory.typ, op.client), memory.typ, words, now, setBound); err != nil {
				return twinAnswer{word: "!" + err.Error()}
			}
			words = "healed"
		case r[8] != 0:
			return twinAnswer{word: fmt.Sprint("!more than a small set: ", r)}
		case words != "" || now < memory.nextAudit:
			return twinAnswer{rejected, r[2], r[3]}
		default:
			words = "check"
			memory.nextAudit = now + min(max(r[6], minAudit), maxAudit)
		}
	}
	return twinAnswer{word: "!forever the rest"}
}
