// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
)

// A twinOp is one operation of the differential run.
type twinOp struct {
	name                      string // the peer's name of it
	client                    int    // the caller: 0 or 1
	permits                   int64  // for tryAcquire and release
	typ                       string // "0" or "1"
	rate, interval, keepAlive int64
	keep                      bool
	ttl                       int64 // for expire
}

// A twinAnswer is "granted", "rejected" with the wait in ms, a number, or a word of the peer's.
type twinAnswer struct {
	word string
	wait int64
	left int64 // after our acquire: the permits left, as the caller is told
}

func (a twinAnswer) String() string {
	if a.word == rejected {
		return fmt.Sprintf("rejected, %d ms", a.wait)
	}
	return a.word
}

const (
	granted      = "granted"
	rejected     = "rejected"
	nilNumber    = "!arithmetic on a nil value"
	twinMaxValue = 1<<32 - 1
)

func (o twinOp) String() string {
	type fields twinOp // without this method
	return fmt.Sprintf("%+v", fields(o))
}

// setsRate reports whether the operation sets the rate: setRate, also with args.
func (o twinOp) setsRate() bool {
	return o.name == "setRate" || o.name == "setRateArgs" || o.name == "updateRate"
}

// outOfRange reports whether an argument is one that we reject and Redisson accepts.
func (o twinOp) outOfRange() bool {
	if o.setsRate() || o.name == "trySetRate" {
		return o.rate < 1 || o.interval < 1
	}
	return (o.name == "tryAcquire" || o.name == "release") && (o.permits < 1 || o.permits > twinMaxValue)
}

// A jar holds the scripts of one version of Redisson, as they were seen on the wire. They can be run at any instant.
type jar struct {
	version version
	scripts capture
	id      string // id of the client that was recorded
}

func newJar(t testing.TB, v version) *jar {
	t.Helper()
	j := &jar{version: v, scripts: captureScripts(t, v)}
	_, id, ok := strings.Cut(j.scripts["tryAcquire"].keys[2], "{"+captureName+"}:value:")
	require.True(t, ok)
	j.id = id
	// The places of the instant and of the options.
	if v.since("4.4.0") {
		for operation, mustExist := range map[string]string{"setRateArgs": "0", "updateRate": "1"} {
			args := j.scripts[operation].args
			require.Equal(t, []string{strconv.Itoa(captureRate), strconv.FormatInt(captureInterval.Milliseconds(), 10), "0", "0"}, args[:4])
			require.Equal(t, []string{"1", mustExist}, args[5:])
		}
	}
	return j
}

// load loads the scripts into a server.
func (j *jar) load(ctx context.Context, rdb redis.UniversalClient) error {
	for _, call := range j.scripts {
		if err := rdb.ScriptLoad(ctx, call.text).Err(); err != nil {
			return err
		}
	}
	return nil
}

// A sent is an operation of the jar in a pipeline.
type sent struct {
	op  twinOp
	cmd *redis.Cmd
}

// send runs op as client id at an instant. random makes the member of a grant unique.
func (j *jar) send(ctx context.Context, pipe redis.Pipeliner, op twinOp, name, id string, now int64, random string) sent {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	if op.name == "delete" { // the only operation without a script
		args := []any{"del"}
		for _, key := range j.scripts["tryAcquire"].keys {
			args = append(args, rename(key, name, j.id, id))
		}
		return sent{op: op, cmd: pipe.Do(ctx, args...)}
	}
	call := j.scripts[op.name]
	args := slices.Clone(call.args)
	switch op.name {
	case "tryAcquire":
		args[0], args[1], args[2] = number(op.permits), number(now), random
	case "availablePermits":
		args[0] = number(now)
	case "release":
		args[0] = number(op.permits)
	case "trySetRate", "setRate", "setRateArgs", "updateRate":
		args[0], args[1], args[2] = number(op.rate), number(op.interval), op.typ
		if len(args) > 3 {
			args[3] = number(op.keepAlive)
		}
		if len(args) > 4 {
			args[4], args[5] = number(now), "0"
			if op.keep {
				args[5] = "1"
			}
		}
	case "expire":
		args[0] = number(op.ttl)
	}
	words := []any{"evalsha", redis.NewScript(call.text).Hash(), len(call.keys)}
	for _, key := range call.keys {
		words = append(words, rename(key, name, j.id, id))
	}
	for _, arg := range args {
		words = append(words, arg)
	}
	return sent{op: op, cmd: pipe.Do(ctx, words...)}
}

func rename(key, name, was, id string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, captureName, name), was, id)
}

// random returns an argument that makes a grant unique: as many bytes as the jar sends, or a number before 3.16.4.
func (j *jar) random(bits uint64) string {
	if !j.version.since("3.16.4") {
		return strconv.FormatInt(int64(bits), 10)
	}
	return fmt.Sprintf("%016x", bits)[16-len(j.scripts["tryAcquire"].args[2]):]
}

// answer returns what Redisson returns to its caller.
func (s sent) answer() twinAnswer {
	value, err := s.cmd.Result()
	if errors.Is(err, redis.Nil) {
		value, err = nil, nil
	}
	if err != nil {
		switch text := err.Error(); {
		case strings.Contains(text, "RateLimiter is not initialized"):
			return twinAnswer{word: notInitialized}
		case strings.Contains(text, "exceed defined rate"):
			return twinAnswer{word: exceedsRate}
		case strings.Contains(text, "attempt to perform arithmetic on a nil value"),
			strings.Contains(text, "attempt to perform arithmetic on field '?' (a nil value)"):
			return twinAnswer{word: nilNumber}
		default:
			return twinAnswer{word: "!" + text}
		}
	}
	switch s.op.name {
	case "tryAcquire":
		if value == nil {
			return twinAnswer{word: granted}
		}
		return twinAnswer{word: rejected, wait: value.(int64)}
	case "availablePermits":
		return twinAnswer{word: fmt.Sprint(value)} // a bulk string or a number, depending on the branch
	case "release", "setRate", "setRateArgs":
		return twinAnswer{word: "null"}
	}
	return twinAnswer{word: strconv.FormatBool(value.(int64) > 0)}
}

// A library is our side of the run: two of our clients on one limiter. Its clock is the bubble's.
type library struct {
	name    string
	clients [2]*ratelimiter.Client
}

func newLibrary(rdb *redis.Client, name string, ids [2]string, clientTTL int64) *library {
	l := &library{name: name}
	for i, id := range ids {
		var err error
		if l.clients[i], err = ratelimiter.New(rdb, ratelimiter.WithClientID(id), ratelimiter.WithClientClock(),
			ratelimiter.WithClientKeyTTL(time.Duration(clientTTL)*time.Millisecond)); err != nil {
			panic(err)
		}
	}
	return l
}

// do returns the answer to op when all that it does in Redis is done. A caller has its grant before a large set is added up.
func (l *library) do(ctx context.Context, op twinOp) twinAnswer {
	defer synctest.Wait()
	limiter := l.clients[op.client].RateLimiter(l.name)
	duration := func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
	if op.name == "tryAcquire" {
		r, err := limiter.Allow(ctx, op.permits)
		switch {
		case err != nil:
			return twinAnswer{word: wordOf(err)}
		case r.Granted:
			return twinAnswer{granted, r.Wait.Milliseconds(), r.Available}
		}
		return twinAnswer{rejected, r.Wait.Milliseconds(), r.Available}
	}
	var args []any
	switch op.name {
	case "trySetRate", "setRate", "setRateArgs", "updateRate":
		typ := "OVERALL"
		if op.typ == "1" {
			typ = "PER_CLIENT"
		}
		args = []any{typ, int(op.rate), duration(op.interval), duration(op.keepAlive), op.keep}
	case "release":
		args = []any{int(op.permits)}
	case "expire":
		args = []any{duration(op.ttl)}
	}
	return twinAnswer{word: goSide{l.clients[op.client]}.do(op.name, l.name, args...)}
}
