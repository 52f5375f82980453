// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestSlowRedis checks what a server's requests get while each reply of a real Redis takes two seconds, and the
// decision time is one: when the outage is known no request is delayed any more, the policy decides, the process does
// not fill up with goroutines, there is one outage, and it ends when Redis is fast again.
func TestSlowRedis(t *testing.T) {
	redistest.NeedReal(t)
	for _, p := range []ratelimiter.OutagePolicy{
		ratelimiter.FailClosed(),
		ratelimiter.FailOpen(),
		ratelimiter.LocalQuota(ratelimiter.Rate{Permits: 4, Interval: 500 * time.Millisecond}, 2),
	} {
		t.Run(p.String(), func(t *testing.T) { slowRedis(t, p) })
	}
}

func slowRedis(t *testing.T, p ratelimiter.OutagePolicy) {
	const (
		rps, clients = 200, 40
		slow         = 6 * time.Second
	)
	s := redistest.Start(t)
	proxy := redistest.StartProxy(t, s.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	var began, ended atomic.Int64
	client := clienttest.New(t, rdb, ratelimiter.WithOutagePolicy(p), ratelimiter.WithHook(ratelimiter.Hook{Event: func(e ratelimiter.Event) {
		switch e.Kind {
		case ratelimiter.OutageBegan:
			t.Log(e.Kind, e.Err)
			began.Add(1)
		case ratelimiter.OutageEnded:
			t.Log(e.Kind, e.Duration, e.Degraded)
			ended.Add(1)
		}
	}}))
	defer client.Close()
	m, err := New(client, redistest.Key(t), ratelimiter.Rate{Permits: 4, Interval: 500 * time.Millisecond},
		WithKeys(ByHeader("X-Key")))
	require.NoError(t, err)
	h := m.Handler(answers)
	request := func(i int) int { return ask(h, "1.1.1.1:1", "/", "X-Key", fmt.Sprint(i%clients)).Code }
	for i := range clients {
		require.Equal(t, http.StatusOK, request(i))
	}

	before := runtime.NumGoroutine()
	var delay atomic.Bool
	proxy.Judge(func([]string) redistest.Fault {
		if delay.Load() {
			return redistest.Fault{Hold: 2 * time.Second}
		}
		return redistest.Fault{}
	})
	delay.Store(true)
	var (
		requests                       sync.WaitGroup
		late, asked                    int64
		delayed, ok, rejected, unknown atomic.Int64
		begin                          = time.Now()
	)
	for i := 0; time.Since(begin) < slow; i++ {
		after := began.Load() > 0
		asked++
		if after {
			late++
		}
		requests.Go(func() {
			sent := time.Now()
			code := request(i)
			if !after {
				return
			}
			if time.Since(sent) >= time.Second {
				delayed.Add(1)
			}
			switch code {
			case http.StatusOK:
				ok.Add(1)
			case http.StatusTooManyRequests:
				rejected.Add(1)
			default:
				unknown.Add(1)
			}
		})
		time.Sleep(time.Until(begin.Add(time.Duration(i+1) * time.Second / rps)))
	}
	requests.Wait()
	left := int64(runtime.NumGoroutine() - before)
	t.Logf("%v: of %d requests %d in the outage: %d delayed, %d pass, %d get 429, %d get 503; %d goroutines are left", p, asked, late,
		delayed.Load(), ok.Load(), rejected.Load(), unknown.Load(), left)
	delay.Store(false)
	back := time.Now()
	for request(0) == http.StatusServiceUnavailable || ended.Load() == 0 {
		time.Sleep(20 * time.Millisecond)
		require.Less(t, time.Since(back), time.Minute, "Redis is fast again")
	}
	t.Logf("the outage is over %v after Redis is fast again", time.Since(back))

	require.EqualValues(t, 1, began.Load())
	require.EqualValues(t, 1, ended.Load())
	require.LessOrEqual(t, delayed.Load(), late/10, "one request at a time is the probe, and the machine may stand still")
	require.Less(t, left, asked-late+100, "none of the requests in the outage")
	for runtime.NumGoroutine() > before+60 { // what was granted too late has been given back
		time.Sleep(20 * time.Millisecond)
		require.Less(t, time.Since(back), time.Minute, "%d goroutines", runtime.NumGoroutine()-before)
	}
	require.Greater(t, late, asked/4)
	switch p {
	case ratelimiter.FailClosed():
		require.EqualValues(t, late, unknown.Load()+ok.Load()+rejected.Load())
		require.Zero(t, ok.Load())
	case ratelimiter.FailOpen():
		require.EqualValues(t, late, ok.Load())
	default:
		require.Zero(t, unknown.Load(), "the share decides")
		require.Greater(t, ok.Load(), late/4) // it has two permits in half a second for each of 40 clients
	}
}
