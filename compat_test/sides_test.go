// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
)

// A side is one of the two implementations. It takes the peer's operations and replies in the peer's words, so that
// the two can be compared word by word.
type side interface {
	do(operation, name string, args ...any) string
}

// The types of limiters in the words of both sides.
const (
	overall   = "OVERALL"
	perClient = "PER_CLIENT"
)

// The errors in the words of both sides.
const (
	notInitialized  = "!not initialized"
	exceedsRate     = "!exceeds rate"
	invalidArgument = "!invalid argument"
)

// A javaSide is a peer.
type javaSide struct{ *peer }

func (j javaSide) do(operation, name string, args ...any) string {
	if operation == coolDown {
		if taken := j.do("tryAcquire", name, args[1]); taken != "true" {
			return taken
		}
		return "null"
	}
	value, err := j.call(operation, append([]any{name}, args...)...)
	var thrown *javaError
	switch {
	case errors.As(err, &thrown):
		text := err.Error()
		switch {
		case strings.Contains(text, "RateLimiter is not initialized"):
			return notInitialized
		case strings.Contains(text, "exceed defined rate"):
			return exceedsRate
		case thrown.Class == "IllegalArgumentException":
			return invalidArgument
		case operation == "getConfig" && !j.version.since("3.18.0") && thrown.Class == "RedisException":
			return notInitialized // it fails to parse the absent fields
		}
		return "!" + text
	case err != nil:
		return "!" + err.Error()
	case operation == "getConfig" && value == "OVERALL 0 0":
		return notInitialized // the text of 3.18.0 and later
	case operation == "getExpireTime" && strings.HasPrefix(value, "-"):
		return "none"
	}
	return value
}

// A goSide is this library in the place of the JVM whose id it takes.
type goSide struct{ client *ratelimiter.Client }

// newGoSide sets the options that a deployment shared with v would set.
func newGoSide(t testing.TB, rdb redis.UniversalClient, v version, id string, more ...ratelimiter.Option) goSide {
	t.Helper()
	options := append([]ratelimiter.Option{
		ratelimiter.WithClientID(id),
		// By default client keys have a TTL, which Redisson does not set; see TestClientKeyTTL.
		ratelimiter.WithClientKeyTTL(0),
	}, more...)
	if v.since("3.16.4") && !v.since("3.17.0") {
		options = append(options, ratelimiter.WithRedisson316())
	}
	client := clienttest.New(t, rdb, options...)
	t.Cleanup(func() { _ = client.Close() })
	return goSide{client}
}

func (g goSide) do(operation, name string, args ...any) string {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	value, err := g.call(ctx, g.client.RateLimiter(name), operation, args)
	if err != nil {
		return wordOf(err)
	}
	return value
}

// wordOf returns an error of ours in the words of both sides.
func wordOf(err error) string {
	switch {
	case errors.Is(err, ratelimiter.ErrNotInitialized):
		return notInitialized
	case errors.Is(err, ratelimiter.ErrPermitsExceedRate):
		return exceedsRate
	case errors.Is(err, ratelimiter.ErrInvalidArgument):
		return invalidArgument
	}
	return "!" + err.Error()
}

func (g goSide) call(ctx context.Context, l *ratelimiter.RateLimiter, operation string, args []any) (string, error) {
	truth := func(ok bool, err error) (string, error) { return strconv.FormatBool(ok), err }
	void := func(err error) (string, error) { return "null", err }
	switch operation {
	case "trySetRate":
		return truth(l.TrySetRate(ctx, rateOf(args)))
	case "setRate":
		return void(l.SetRate(ctx, rateOf(args)))
	case "setRateArgs":
		return void(l.SetRate(ctx, rateOf(args), optionsOf(args)...))
	case "updateRate":
		return truth(l.UpdateRate(ctx, rateOf(args), optionsOf(args)...))
	case "getConfig":
		r, err := l.Rate(ctx)
		return fmt.Sprintf("%v %d %d", r.Type, r.Permits, r.Interval.Milliseconds()), err
	case "tryAcquire", "tryAcquireDuration":
		return truth(l.TryAcquire(ctx, permitsOf(args), durationOf(args, 1)))
	case "acquire":
		return void(l.Acquire(ctx, permitsOf(args)))
	case "availablePermits":
		n, err := l.AvailablePermits(ctx)
		return strconv.FormatInt(n, 10), err
	case "release":
		return void(l.Release(ctx, permitsOf(args)))
	case "clearExpire":
		return truth(l.Admin().ClearExpire(ctx))
	case "remainTimeToLive":
		return ttlOf(l.Admin().TTL(ctx))
	case "getExpireTime":
		return instantOf(l.Admin().ExpireTime(ctx))
	case "isExists":
		return truth(l.Admin().Exists(ctx))
	case "delete":
		return truth(l.Admin().Delete(ctx))
	case "getName":
		return l.Name(), nil
	case coolDown:
		return void(l.CoolDown(ctx, time.Now().Add(durationOf(args, 0))))
	}
	if condition, ok := conditions[strings.TrimPrefix(operation, "expireAt")]; ok {
		return truth(l.Admin().ExpireAt(ctx, time.UnixMilli(args[0].(int64)), condition...))
	}
	if condition, ok := conditions[strings.TrimPrefix(operation, "expire")]; ok {
		return truth(l.Admin().Expire(ctx, durationOf(args, 0), condition...))
	}
	return "", fmt.Errorf("unknown operation %s", operation)
}

// conditions are the ends of the names of expire and expireAt.
var conditions = map[string][]ratelimiter.ExpireCondition{
	"":          nil,
	"IfSet":     {ratelimiter.IfSet()},
	"IfNotSet":  {ratelimiter.IfNotSet()},
	"IfGreater": {ratelimiter.IfGreater()},
	"IfLess":    {ratelimiter.IfLess()},
}

// ttlOf returns a TTL as Redis replies it.
func ttlOf(d time.Duration, err error) (string, error) {
	switch {
	case errors.Is(err, ratelimiter.ErrNotInitialized):
		return "-2", nil
	case d == 0:
		return "-1", err
	}
	return strconv.FormatInt(d.Milliseconds(), 10), err
}

func instantOf(at time.Time, err error) (string, error) {
	if errors.Is(err, ratelimiter.ErrNotInitialized) {
		err = nil
	}
	if at.IsZero() {
		return "none", err
	}
	return strconv.FormatInt(at.UnixMilli(), 10), err
}

func rateOf(args []any) ratelimiter.Rate {
	r := ratelimiter.Rate{Permits: permitsOf(args[1:]), Interval: durationOf(args, 2)}
	if args[0] == "PER_CLIENT" {
		r.Type = ratelimiter.PerClient
	}
	if len(args) > 3 && args[3] != "-" {
		r.KeepAlive = durationOf(args, 3)
	}
	return r
}

// optionsOf reads the KEEPSTATE argument of setRateArgs and updateRate.
func optionsOf(args []any) []ratelimiter.RateOption {
	if args[4] == true {
		return []ratelimiter.RateOption{ratelimiter.KeepState()}
	}
	return nil
}

func permitsOf(args []any) int64 { return int64(args[0].(int)) }

func durationOf(args []any, i int) time.Duration {
	if i >= len(args) {
		return 0
	}
	return args[i].(time.Duration)
}
