// SPDX-License-Identifier: Apache-2.0

package metricname

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// A million names are at most 65 values.
func TestEachHealed(t *testing.T) {
	got := map[string]int64{}
	f := func(cause string, permits int64) { got[cause] = permits }
	EachHealed(ratelimiter.Healed{}, f)
	require.Empty(t, got)
	EachHealed(ratelimiter.Healed{Value: 1, Lost: 2, Surplus: 3, Clock: 4}, f)
	require.Equal(t, map[string]int64{"value": 1, "lost": 2, "surplus": 3, "clock": 4}, got)
}

func TestPoliciesAreBounded(t *testing.T) {
	p := Policies(func(limiter string) string { return limiter })
	seen := map[string]bool{}
	for i := range 1_000_000 {
		seen[p(fmt.Sprint("user:", i))] = true
	}
	require.Len(t, seen, MaxPolicies+1)
	require.True(t, seen["_OTHER"])
	require.Equal(t, "user:3", p("user:3"), "the first ones keep theirs")
	require.Equal(t, "_OTHER", Policies(nil)("user:3"))

	p = Policies(func(limiter string) string { return limiter })
	var all sync.Map
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				all.Store(p(fmt.Sprint(i, "/", j)), true)
			}
		})
	}
	wg.Wait()
	values := 0
	all.Range(func(any, any) bool { values++; return true })
	require.Equal(t, MaxPolicies+1, values)
}

func TestOfError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: acquire of %q", ratelimiter.ErrUnavailable, "user:42"), "unavailable"},
		{permit.Exceeds("user:42", 3, 0, 2), "permits_exceed_rate"},
		{permit.TypeKeepsChanging("acquire", "user:42"), "conflict"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
		{fmt.Errorf("read: %w", os.ErrDeadlineExceeded), "timeout"},
		{&net.OpError{Op: "dial", Err: errors.New("rejected")}, "network"},
		{errors.New("OOM command not allowed when used memory > 'maxmemory'."), "OOM"},
		{errors.New("ERR Error running script (call to f_66118a6b): @user_script:19: @user_script: 19: -OOM command not allowed"), "OOM"},
		{errors.New("ERR Error running script (call to f_66118a6b): @user_script:12: WRONGTYPE Operation against a key"), "WRONGTYPE"},
		{errors.New("ERR user_script:12: something about user:42"), "_OTHER"},
	} {
		require.Equal(t, c.want, OfError(c.err), "%v", c.err)
	}
}

// A value is made once, however many ask for it together.
func TestCache(t *testing.T) {
	var mu sync.Mutex
	made := map[int]int{}
	c := Cached(func(key int) int {
		mu.Lock()
		defer mu.Unlock()
		made[key]++
		return -key
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				if c(i%100) != -(i % 100) {
					panic("another key's value")
				}
			}
		})
	}
	all.Wait()
	require.Len(t, made, 100)
	for _, times := range made {
		require.Equal(t, 1, times)
	}
}
