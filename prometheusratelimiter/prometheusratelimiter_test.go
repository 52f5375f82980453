// SPDX-License-Identifier: Apache-2.0

package prometheusratelimiter

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type world struct {
	t      *testing.T
	server *miniredis.Miniredis
	client *ratelimiter.Client
	reg    *prometheus.Registry
}

func newWorld(t *testing.T, policies func(string) string) *world {
	redistest.NoServer(t)
	w := &world{t: t, server: miniredis.RunT(t), reg: prometheus.NewPedanticRegistry()}
	hook := redistest.Must(NewHook(w.reg, WithPolicies(policies)))(t)
	rdb := redis.NewClient(&redis.Options{Addr: w.server.Addr()})
	w.client = clienttest.New(t, rdb, ratelimiter.WithHook(hook))
	t.Cleanup(func() {
		require.NoError(t, w.client.Close())
		require.NoError(t, rdb.Close())
	})
	return w
}

func (w *world) limiter(name string, permits int64) *ratelimiter.RateLimiter {
	w.t.Helper()
	l := w.client.RateLimiter(name)
	require.NoError(w.t, l.SetRate(w.t.Context(), ratelimiter.Rate{Permits: permits, Interval: time.Minute}))
	return l
}

// scrape returns the lines of the text format, over HTTP as Prometheus asks for it.
func (w *world) scrape() string {
	w.t.Helper()
	srv := httptest.NewServer(promhttp.HandlerFor(w.reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer srv.Close()
	resp := redistest.Must(http.Get(srv.URL))(w.t)
	defer func() { require.NoError(w.t, resp.Body.Close()) }()
	body := redistest.Must(io.ReadAll(resp.Body))(w.t)
	require.Equal(w.t, http.StatusOK, resp.StatusCode, "%s", body)
	return string(body)
}

func (w *world) has(lines ...string) {
	w.t.Helper()
	body := w.scrape()
	for _, line := range lines {
		require.Regexp(w.t, "(?m)^"+regexp.QuoteMeta(line)+"$", body)
	}
}

// soon waits for a line that an event writes: those who wait for Redis are let go a moment before.
func (w *world) soon(line string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return strings.Contains("\n"+w.scrape(), "\n"+line+"\n") }, 10*time.Second, time.Millisecond, line)
}

func TestScrape(t *testing.T) {
	w := newWorld(t, firstPart)
	clienttest.EveryOutcome(t, w.limiter("api:203.0.113.7", 2))
	w.has(
		`ratelimiter_requests_total{degraded="false",operation="allow",outcome="granted",policy="api"} 2`,
		`ratelimiter_requests_total{degraded="false",operation="allow",outcome="rejected",policy="api"} 1`,
		`ratelimiter_requests_total{degraded="false",operation="acquire",outcome="timeout",policy="api"} 1`,
		`ratelimiter_requests_total{degraded="false",operation="acquire",outcome="canceled",policy="api"} 1`,
		`ratelimiter_requests_total{degraded="false",operation="peek",outcome="granted",policy="api"} 1`,
		`ratelimiter_permits_total{outcome="granted",policy="api"} 2`,
		`ratelimiter_permits_total{outcome="timeout",policy="api"} 2`,
		`ratelimiter_wait_duration_seconds_count{outcome="granted",policy="api"} 2`,
		`ratelimiter_wait_duration_seconds_count{outcome="timeout",policy="api"} 1`,
		`ratelimiter_waiting{policy="api"} 0`,
		`ratelimiter_call_duration_seconds_count{error_type="",script="set_rate"} 1`,
		`ratelimiter_outage_state 0`,
		`ratelimiter_panics_total 0`,
	)
	require.NotContains(t, w.scrape(), "203.0.113.7")
	problems := redistest.Must(testutil.GatherAndLint(w.reg))(t)
	require.Empty(t, problems)
}

// What a call heals is counted by what was wrong, and nothing is while a limiter is healthy.
func TestHealed(t *testing.T) {
	w := newWorld(t, nil)
	l := w.limiter("a", 5)
	redistest.Must(l.Allow(t.Context(), 5))(t)
	require.NoError(t, l.Admin().Heal(t.Context()))
	require.NotContains(t, w.scrape(), "ratelimiter_healed_permits_total{")
	require.NoError(t, w.server.Set("{a}:value", "2"))
	require.NoError(t, l.Admin().Heal(t.Context()))
	w.has(`ratelimiter_healed_permits_total{cause="surplus",policy="_OTHER"} 2`)
}

func TestOutage(t *testing.T) {
	w := newWorld(t, nil)
	l := w.limiter("a", 1)
	w.server.SetError("LOADING Redis is loading the dataset in memory")
	_, err := l.Allow(t.Context(), 1)
	require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
	w.soon(`ratelimiter_outage_state 1`)
	w.has(`ratelimiter_requests_total{degraded="false",operation="allow",outcome="error",policy="_OTHER"} 1`)
	require.Regexp(t, `ratelimiter_call_duration_seconds_count\{error_type="LOADING",script="acquire(_rest)?"\}`, w.scrape())
	w.server.SetError("")
	require.NoError(t, l.Acquire(t.Context(), 1))
	w.soon(`ratelimiter_outage_duration_seconds_count 1`)
	w.has(`ratelimiter_outage_state 0`)
}

func TestWatch(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	redistest.Must(w.limiter("a", 5).Allow(ctx, 2))(t)
	require.NoError(t, w.limiter("b", 7).CoolDown(ctx, time.Now().Add(time.Hour)))
	c := redistest.Must(Watch(w.client, []string{"a", "absent", "b"}))(t)
	require.NoError(t, w.reg.Register(c))
	w.has(`ratelimiter_limit{policy="a"} 5`, `ratelimiter_available{policy="a"} 3`, `ratelimiter_cooldown_remaining_seconds{policy="a"} 0`,
		`ratelimiter_limit{policy="b"} 7`, `ratelimiter_available{policy="b"} 0`, `ratelimiter_watch_errors 1`)
	require.Regexp(t, `ratelimiter_cooldown_remaining_seconds\{policy="b"\} 3[0-9]{3}`, w.scrape())

	_, err := Watch(w.client, make([]string, 65))
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
}

// The dashboard asks for metrics and labels that there are, and shows each metric.
func TestDashboard(t *testing.T) {
	raw := redistest.Must(os.ReadFile("dashboard.json"))(t)
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &d))
	w := newWorld(t, nil)
	l := w.limiter("a", 5)
	redistest.Must(l.Allow(t.Context(), 1))(t)
	ok := redistest.Must(l.TryAcquire(t.Context(), 1, time.Second))(t)
	require.True(t, ok)
	c := redistest.Must(Watch(w.client, []string{"a"}))(t)
	require.NoError(t, w.reg.Register(c))
	there := w.scrape()
	name, label := regexp.MustCompile(`ratelimiter_[a-z_]+`), regexp.MustCompile(`([a-z_]+)(?:=|!=|=~)"`)
	shown := map[string]bool{}
	for _, p := range d.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			for _, n := range name.FindAllString(target.Expr, -1) {
				family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(n, "_bucket"), "_sum"), "_count")
				shown[family] = true
			}
			for _, l := range label.FindAllStringSubmatch(target.Expr, -1) {
				require.Contains(t, []string{"policy", "operation", "outcome", "degraded", "error_type", "cause"}, l[1], target.Expr)
			}
		}
	}
	// Of these there are no samples before something happens.
	rare := []string{"ratelimiter_clock_skew_seconds", "ratelimiter_refunded_permits_total", "ratelimiter_healed_permits_total"}
	for _, family := range rare {
		require.True(t, shown[family], "%s is in no panel", family)
	}
	for family := range shown {
		if !slices.Contains(rare, family) {
			require.Contains(t, there, "# TYPE "+family+" ")
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (ratelimiter_\S+)`).FindAllStringSubmatch(there, -1) {
		if m[1] != "ratelimiter_permits_total" && m[1] != "ratelimiter_outage_duration_seconds" && m[1] != "ratelimiter_watch_errors" && m[1] != "ratelimiter_client_info" {
			require.True(t, shown[m[1]], "%s is in no panel", m[1])
		}
	}
}

// TestAlerts: the rules ask for metrics that there are, have a name, a severity and what to do, and promtool, where it is
// installed, accepts them and finds that each fires in the state that it is for.
func TestAlerts(t *testing.T) {
	raw := redistest.Must(os.ReadFile("alerts.yml"))(t)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(raw, &file))
	require.Len(t, file.Groups, 1)
	doc := redistest.Must(os.ReadFile("../docs/metrics.md"))(t)
	cases := redistest.Must(os.ReadFile("testdata/alerts_test.yml"))(t)
	asked := map[string]bool{}
	for _, r := range file.Groups[0].Rules {
		require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["action"], r.Alert)
		require.Contains(t, string(doc), "| `"+r.Alert+"` |", "docs/metrics.md does not say what the alert is for")
		require.Contains(t, string(cases), `alertname="`+r.Alert+`"`)
		expr := strings.ReplaceAll(r.Expr, "ratelimiter_healed(_permits)?_total", "ratelimiter_healed_permits_total")
		for _, n := range regexp.MustCompile(`(?:ratelimiter|httplimit)_[a-z_]+`).FindAllString(expr, -1) {
			asked[strings.TrimSuffix(n, "_count")] = true
		}
	}
	for family := range asked {
		require.Contains(t, string(doc), "`"+family+"`")
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed: the rules are not run")
		return
	}
	for _, args := range [][]string{{"check", "rules", "../alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "testdata"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// Registered twice is an error that leaves the first ones in place and none of the second.
func TestRegisteredTwice(t *testing.T) {
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(prometheus.NewCounter(prometheus.CounterOpts{Name: "ratelimiter_panics_total", Help: "mine"})))
	_, err := NewHook(reg)
	require.Error(t, err)
	families := redistest.Must(reg.Gather())(t)
	require.Len(t, families, 1)
	redistest.Must(NewHook(prometheus.NewRegistry()))(t)
}

// TestClientInfo has the id of each Client and the process as which it is known, of the first ones that share the Hook.
func TestClientInfo(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	hook := redistest.Must(NewHook(reg))(t)
	hook.Started(ratelimiter.ClientInfo{ID: "28d0c3a1", Process: "28d0"})
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP ratelimiter_client_info Always 1: the id of each Client of this process, and the process by which rrl and the page know it.
# TYPE ratelimiter_client_info gauge
ratelimiter_client_info{client_id="28d0c3a1",process="28d0"} 1
`), "ratelimiter_client_info"))
	for i := range 100 {
		hook.Started(ratelimiter.ClientInfo{ID: strconv.Itoa(i)})
	}
	require.Equal(t, 16, redistest.Must(testutil.GatherAndCount(reg, "ratelimiter_client_info"))(t))
}
