// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/test/dinggate"
	"github.com/goredisson/ratelimiter/internal/test/dinggate/dingtest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestDingTalkBansUs follows the steps of troubleshooting.md while a gateway bans a robot as DingTalk does.
func TestDingTalkBansUs(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	_, section, _ := strings.Cut(pages(t)["docs/troubleshooting.md"], "## DingTalk bans us\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 2)
	token := regexp.MustCompile(`TOKEN=(\S+)`).FindStringSubmatch(blocks[0][1])[1]

	bin := redistest.Must(filepath.Abs(t.TempDir()))(t)
	out, err := exec.Command("go", "build", "-o", bin+"/", "./cmd/rrl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	server := redistest.Start(t)
	run := func(script string) {
		cmd := exec.Command("bash", "-eu", "-o", "pipefail", "-c", script)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "REDIS_URL=redis://"+server.Addr())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, out)
	}
	client := redistest.Must(ratelimiter.New(server.Client(t)))(t)
	t.Cleanup(func() { _ = client.Close() })
	gate := redistest.Must(dinggate.Start(dinggate.Standard()))(t)
	t.Cleanup(func() { require.NoError(t, gate.Close()) })
	base := redistest.Must(url.Parse(gate.URL))(t)

	// Two programs: each has a Transport, and the second one starts after the ban.
	var mu sync.Mutex
	var events []httplimit.Event
	program := func() (*http.Client, *httplimit.Transport) {
		transport := redistest.Must(httplimit.New(client, httplimit.WithMaxWait(0),
			httplimit.WithProfile(platform.DingTalkRobot(platform.WithHosts(base.Hostname()))),
			httplimit.WithEvents(func(e httplimit.Event) { mu.Lock(); events = append(events, e); mu.Unlock() })))(t)
		return &http.Client{Transport: transport}, transport
	}
	send := func(c *http.Client, token string) error { return dingtest.Send(c, gate.URL, token) }
	stopped := func(c *http.Client, token, scope string, d time.Duration) {
		var rejected *httplimit.Error
		require.True(t, errors.As(send(c, token), &rejected))
		require.Regexp(t, `^\{dingtalk\}:`+scope+`:`, rejected.Limiter)
		until := redistest.Must(client.RateLimiter(rejected.Limiter).Admin().CoolDownUntil(t.Context()))(t)
		require.InDelta(t, d.Seconds(), time.Until(until).Seconds(), 15, rejected.Limiter)
	}

	// 1. The limiter of the robot does not exist yet. Its script stops it for its ten minutes, and nobody else.
	run(blocks[0][1])
	first, transport := program()
	stopped(first, token, "robot", 10*time.Minute)
	require.NoError(t, send(first, "another"))
	require.EqualValues(t, 1, gate.Ledger().Total.Calls)

	// 2. The event of a ban names its scope, and the Transport has stopped that robot for as long by itself.
	require.NoError(t, gate.Ban(dinggate.DimRobot, "another", 10*time.Minute))
	require.NoError(t, send(first, "another"))
	mu.Lock()
	var throttled []httplimit.Event
	for _, e := range events {
		if e.Kind == httplimit.EventThrottled {
			throttled = append(throttled, e)
		}
	}
	mu.Unlock()
	require.Len(t, throttled, 1)
	require.Equal(t, platform.ScopeRobot, throttled[0].Scope)
	require.True(t, throttled[0].Banned)
	stopped(first, "another", "robot", 10*time.Minute)

	// 3. and 4. What the limiter has counted, and its rate.
	inspected := redistest.Must(client.RateLimiter("{dingtalk}:robot:" + httplimit.Hash(token) + ":1m").Rate(t.Context()))(t)
	require.Equal(t, ratelimiter.Rate{Permits: 20, Interval: 61 * time.Second}, inspected)

	// 5. The delays are known.
	_, requests := transport.DelaySpread(base.Hostname())
	require.Positive(t, requests)

	// The address, for all robots of a program that starts now, whose limiter exists.
	run(blocks[1][1])
	second, _ := program()
	stopped(second, "third", "ip", 5*time.Minute)
	require.EqualValues(t, 2, gate.Ledger().Total.Calls)
	mu.Lock()
	defer mu.Unlock()
	for _, e := range events {
		require.NotEqual(t, httplimit.EventRateDiffers, e.Kind, "the rates of the scripts are the profile's: %s", e.Reason)
	}
}
