// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// outOfRange returns algorithms that have a parameter out of its range.
func outOfRange() map[string]Algorithm {
	second := time.Second
	list := map[string]Algorithm{
		"no permits":             FixedWindow{per(0, second)},
		"negative permits":       SlidingLog{per(-1, second)},
		"too many permits":       SlidingLog{per(1<<32, 2*time.Hour)},
		"no interval":            FixedWindow{per(1, 0)},
		"negative interval":      SlidingCounter{per(1, -second)},
		"nanoseconds":            SlidingCounter{per(1, second+1)},
		"more than 50 years":     FixedWindow{per(1, longestInterval+second)},
		"an empty bucket":        TokenBucket{per(1, second), 0},
		"too large a burst":      TokenBucket{per(1, second), 1 << 32},
		"inexact bucket":         TokenBucket{per(1, 24*time.Hour), 1 << 30},
		"inexact burst":          GCRA{per(1, 24*time.Hour), 1 << 30},
		"inexact queue":          LeakyQueue{per(1, 24*time.Hour), 1 << 30},
		"inexact steps":          IntervalBucket{per(1, 24*time.Hour), 1 << 30},
		"not within a billionth": TokenBucket{per(999_999_937, 240*time.Hour), 999_999_937},
		"no steps":               IntervalBucket{per(1, second), -1},
		"no debt":                DebtBucket{per(1, second), 1, 0},
		"no burst, but debt":     DebtBucket{per(1, second), 0, 1},
		"inexact debt":           DebtBucket{per(1, 24*time.Hour), 1, 1 << 30},
		"rate of a debt":         DebtBucket{per(0, second), 1, 1},
		"no rate":                SmoothBursty{0, second},
		"not a number":           SmoothBursty{math.NaN(), second},
		"infinite":               SmoothBursty{math.Inf(1), second},
		"too fast":               SmoothBursty{1 << 32, second},
		"too slow":               SmoothBursty{1e-9, second},
		"no burst":               SmoothBursty{1, 0},
		"burst in nanoseconds":   SmoothBursty{1, 1},
		"burst of years":         SmoothBursty{1, 2 * calls.Longest},
		"no warm-up":             SmoothWarmingUp{PermitsPerSecond: 1},
		"negative warm-up":       SmoothWarmingUp{PermitsPerSecond: 1, Warmup: -second},
		"cold factor of one":     SmoothWarmingUp{1, second, 1},
		"cold factor of nothing": SmoothWarmingUp{1, second, math.NaN()},
		"negative burst":         GCRA{per(1, second), -1},
		"no queue":               LeakyQueue{per(1, second), -1},
		"too large a debt":       DebtBucket{per(1, second), 1, math.MaxInt64},
		"the largest burst":      DebtBucket{per(1, second), math.MaxInt64, 1},
		"too large together":     DebtBucket{per(1, second), calls.MaxPermits, calls.MaxPermits},
		"negative quota":         CalendarQuota{Permits: -1, Per: Day, Location: time.UTC},
		"no period":              CalendarQuota{Permits: 1, Location: time.UTC},
	}
	for kind, a := range every() {
		list["zero value, "+kind] = reflect.Zero(reflect.TypeOf(a)).Interface().(Algorithm)
		list["nil, "+kind] = reflect.Zero(reflect.PointerTo(reflect.TypeOf(a))).Interface().(Algorithm)
		v := reflect.New(reflect.TypeOf(a)).Elem()
		v.Set(reflect.ValueOf(a))
		if r := v.FieldByName("Rate"); r.IsValid() {
			r.Set(reflect.ValueOf(per(1, time.Microsecond-1)))
			list["less than a microsecond, "+kind] = v.Interface().(Algorithm)
		}
	}
	return list
}

// TestNumbers checks that parameters out of their range are rejected before anything is made or sent, and that nothing is granted by
// them.
func TestNumbers(t *testing.T) {
	redistest.NoServer(t)
	for name, a := range outOfRange() {
		_, err := NewLocal(a)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, name)
		_, err = NewShared(&redis.Client{}, "x", a)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, name)
		require.Zero(t, MaxPerCall(a), name)
		for _, window := range []time.Duration{math.MinInt64, 0, time.Microsecond, time.Second, math.MaxInt64} {
			for _, n := range []int64{math.MinInt64, 0, 1, math.MaxInt64} {
				require.Zero(t, Bound(a, window, n), "%s in %v", name, window)
			}
		}
	}
	_, err := NewLocal(nil)
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	_, err = NewShared(nil, "x", FixedWindow{per(1, time.Second)})
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	for _, name := range []string{"", "{", "a}"} {
		_, err = NewShared(&redis.Client{}, name, FixedWindow{per(1, time.Second)})
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, name)
	}
	for _, opts := range [][]Option{{nil}, {WithoutReplay(), nil}, {nil, WithoutReplay()}} {
		_, err = NewShared(&redis.Client{}, "x", FixedWindow{per(1, time.Second)}, opts...)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		require.ErrorContains(t, err, "Option")
	}
}

// TestErrorsNameTheField checks that the error about a parameter has the name of its field and its value.
func TestErrorsNameTheField(t *testing.T) {
	redistest.NoServer(t)
	second, year := time.Second, calls.Longest
	for text, a := range map[string]Algorithm{
		"Rate.Permits 0 is not in 1..4294967295":                                 FixedWindow{per(0, second)},
		"Rate.Interval 1ns is not a positive number of microseconds":             SlidingLog{per(1, 1)},
		"Burst 0 is not in 1..4294967295":                                        TokenBucket{per(1, second), 0},
		"Burst -1 is not in 1..4294967295":                                       GCRA{per(1, second), -1},
		"Burst -2 is not in 1..4294967295":                                       IntervalBucket{per(1, second), -2},
		"Burst -3 is not in 1..4294967295":                                       DebtBucket{per(1, second), -3, 1},
		"Burst 1073741824 is too large to be counted exactly":                    GCRA{per(1, 24*time.Hour), 1 << 30},
		"Burst 1073741824 takes more than 142 years to fill at":                  IntervalBucket{per(1, 24*time.Hour), 1 << 30},
		"Debt 0 is not in 1..4294967295":                                         DebtBucket{per(1, second), 1, 0},
		"Burst + Debt 8589934590 is not in 1..4294967295":                        DebtBucket{per(1, second), calls.MaxPermits, calls.MaxPermits},
		"Capacity 0 is not in 1..4294967295":                                     LeakyQueue{per(1, second), 0},
		"Capacity 1073741824 is too large to be counted exactly":                 LeakyQueue{per(1, 24*time.Hour), 1 << 30},
		"PermitsPerSecond 0 is not between one a year and 4294967295":            SmoothBursty{0, second},
		"PermitsPerSecond NaN is not between one a year and 4294967295":          SmoothBursty{math.NaN(), second},
		"PermitsPerSecond +Inf is not between one a year and 4294967295":         SmoothWarmingUp{math.Inf(1), second, 3},
		"PermitsPerSecond 4.294967296e+09 is not between one a year":             SmoothBursty{1 << 32, second},
		"MaxBurst 0s is not a positive number of microseconds of at most a year": SmoothBursty{1, 0},
		"MaxBurst 8760h0m0.000001s is not a positive number of microseconds":     SmoothBursty{1, year + time.Microsecond},
		"Warmup -1s is not a positive number of microseconds of at most a year":  SmoothWarmingUp{1, -second, 3},
		"ColdFactor 1 is not more than 1 and at most 1000":                       SmoothWarmingUp{1, second, 1},
	} {
		_, err := NewLocal(a)
		require.ErrorContains(t, err, ": "+text)
	}
}

// TestBoundOfAnyNumbers checks that the bound of an algorithm is at least 0 and grows with the window and with the permits of a call, up to
// those that a call can get.
func TestBoundOfAnyNumbers(t *testing.T) {
	redistest.NoServer(t)
	require.Zero(t, Bound(nil, time.Second, 1))
	require.Zero(t, MaxPerCall(nil))
	windows := []time.Duration{math.MinInt64, -1, 0, time.Microsecond, time.Second, 300 * 24 * time.Hour, math.MaxInt64}
	calls := []int64{math.MinInt64, -1, 0, 1, 2, 5, 8, 11, calls.MaxPermits, math.MaxInt64}
	for kind, a := range every() {
		most := MaxPerCall(a)
		require.Positive(t, most, kind)
		for i, w := range windows {
			for j, n := range calls {
				what := fmt.Sprintf("%s: %v, %d permits", kind, w, n)
				bound := Bound(a, w, n)
				require.Equal(t, w > 0 && n > 0, bound > 0, what)
				require.GreaterOrEqual(t, bound, Bound(a, windows[max(i, 1)-1], n), what)
				require.GreaterOrEqual(t, bound, Bound(a, w, calls[max(j, 1)-1]), what)
				if n > most {
					require.Equal(t, Bound(a, w, most), bound, what)
				}
			}
		}
	}
}

// TestAlgorithmIsInForce checks that Algorithm returns what a limiter was made of, which nobody else can change.
func TestAlgorithmIsInForce(t *testing.T) {
	redistest.NoServer(t)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for kind, a := range every() {
		pointer := reflect.New(reflect.TypeOf(a))
		pointer.Elem().Set(reflect.ValueOf(a))
		given := pointer.Interface().(Algorithm)
		limiters := map[string]interface{ Algorithm() Algorithm }{
			"local":  redistest.Must(NewLocal(given))(t),
			"shared": redistest.Must(NewShared(rdb, "x", given))(t),
			"fleet":  redistest.Must(NewShared(rdb, "x", given, WithFleetParameters(KeepState)))(t),
		}
		require.Equal(t, Bound(a, time.Minute, 1), Bound(given, time.Minute, 1), kind)
		require.Equal(t, MaxPerCall(a), MaxPerCall(given), kind)
		pointer.Elem().SetZero()
		for form, l := range limiters {
			require.Equal(t, a, l.Algorithm(), "%s, %s", kind, form)
		}
	}
	mine := TokenBucket{per1(5), 6}
	l := redistest.Must(NewShared(rdb, "x", GCRA{per1(1), 1}))(t)
	require.Equal(t, GCRA(mine), l.For("x").With(&mine).Algorithm())
	require.Equal(t, GCRA{per1(1), 1}, l.For("x").Algorithm())
}

// A wrapped is a Limiter of a program.
type wrapped struct{ *Shared }

// TestWaitForAWrappedZeroValue: a limiter without an algorithm says itself what is wrong.
func TestWaitForAWrappedZeroValue(t *testing.T) {
	redistest.NoServer(t)
	require.ErrorIs(t, Wait(t.Context(), wrapped{&Shared{}}, 1), ratelimiter.ErrInvalidArgument)
}
