// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/dinggate"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.Main(m)
}

// start starts a gateway whose minute is 5 s.
func start(t *testing.T) *dinggate.Server {
	t.Helper()
	limits := dinggate.Standard()
	limits[dinggate.DimRobot].Window = 5 * time.Second
	gate := redistest.Must(dinggate.Start(limits))(t)
	t.Cleanup(func() { require.NoError(t, gate.Close()) })
	return gate
}

// play runs the program with a gateway.
func play(t *testing.T, args ...string) (code int, stdout, stderr string, ledger dinggate.Ledger) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	gate := start(t)
	var out, errs strings.Builder
	code = run(t.Context(), append([]string{"-url", gate.URL, "-minute=5s"}, args...), &out, &errs)
	return code, out.String(), errs.String(), gate.Ledger()
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// TestServicesKeepTheLimit runs on the lane's Redis. There are more messages than a minute allows, so that the
// services wait for the next one.
func TestServicesKeepTheLimit(t *testing.T) {
	rdb := redistest.Client(t)
	name := redistest.Key(t)
	// Their minute is longer than the platform's, so that no message which the machine holds up on its way counts too late.
	code, out, errs, ledger := play(t, "-redis", rdb.Options().Addr, "-name", name, "-messages=30", "-minute=9s")
	require.Zero(t, code, "%s%s", out, errs)
	require.Contains(t, lastLine(out), "sent 30 of 30")
	require.Equal(t, dinggate.Counts{Calls: 30, Admitted: 30}, ledger.Total)
	require.Empty(t, redistest.Must(rdb.Keys(t.Context(), "*"+name+"*").Result())(t), "left behind")
}

func TestOneCommand(t *testing.T) {
	code, out, errs, ledger := play(t, "-messages=20")
	require.Zero(t, code, "%s%s", out, errs)
	require.Contains(t, out, "20 messages from 3 services, 20 in any 5s, on an embedded Redis")
	require.Contains(t, lastLine(out), "sent 20 of 20")
	require.Equal(t, dinggate.Counts{Calls: 20, Admitted: 20}, ledger.Total)
}

// TestWithoutTheLimitTheRobotIsBanned checks that the gateway bans: without the limit the same services lose a robot
// and two messages of three.
func TestWithoutTheLimitTheRobotIsBanned(t *testing.T) {
	code, out, errs, ledger := play(t, "-limit=false")
	require.Equal(t, 1, code)
	require.Contains(t, out, "dingtalk: errcode 410100: ")
	require.Contains(t, lastLine(out), "sent 20 of 60")
	require.Equal(t, "dingtalk: 40 of 60 messages were not sent\n", errs)
	require.EqualValues(t, 1, ledger.Total.Penalties)
	require.EqualValues(t, 79, ledger.Total.During, "each of the 40 was sent twice")
}

// TestABanSilencesAllServices checks that a ban of the address costs each service one call at most, and no message.
func TestABanSilencesAllServices(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	gate := start(t)
	const ban = 2 * time.Second
	var text strings.Builder
	out := &watched{hear: func(line string) {
		text.WriteString(line)
		if strings.Contains(line, "10th message") {
			require.NoError(t, gate.Ban(dinggate.DimIP, "127.0.0.1", ban))
		}
	}}
	var errs strings.Builder
	require.Zero(t, run(t.Context(), []string{"-url", gate.URL, "-messages=16", "-minute=9s", "-ban", ban.String()}, out, &errs), "%s%s", text.String(), &errs)
	require.Contains(t, text.String(), "is told of a ban: nobody sends for")
	require.Contains(t, lastLine(text.String()), "sent 16 of 16")
	ledger := gate.Ledger()
	require.Len(t, ledger.Penalties, 1)
	require.True(t, ledger.Penalties[0].Outside)
	require.Positive(t, ledger.Penalties[0].Calls)
	require.LessOrEqual(t, ledger.Penalties[0].Calls, int64(services))
}

func TestUsage(t *testing.T) {
	t.Setenv("DINGTALK_URL", "")
	for arg, want := range map[string]string{
		"-url=": "-url is no URL of DingTalk", "-url=oapi.dingtalk.com": "-url is no URL of DingTalk",
		"-minute=2m": "a minute of 2m0s, a ban of 5m0s: one is out of its range", "-messages=0": "0 messages", "-ban=-1s": "a ban of -1s", "more": `arguments ["more"]`, "-x": "not defined",
	} {
		code, out, errs, _ := play(t, arg)
		require.Equal(t, 2, code, arg)
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
	code, _, _, _ := play(t, "-help")
	require.Zero(t, code)
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &watched{hear: func(line string) {
		if strings.Contains(line, "20th message") {
			cancel()
		}
	}}
	var errs strings.Builder
	require.Equal(t, 1, run(ctx, []string{"-redis=", "-minute=5s", "-url", start(t).URL}, out, &errs))
	require.Contains(t, errs.String(), "context canceled")
}

type watched struct{ hear func(string) }

func (w *watched) Write(b []byte) (int, error) { w.hear(string(b)); return len(b), nil }

func TestRobot(t *testing.T) {
	var answer string
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/robot/send" || r.URL.Query().Get("access_token") != "a&b" ||
			!json.Valid(body) || string(body) != `{"msgtype":"text","text":{"content":"hello"}}` {
			answer = `{"errcode":-1,"errmsg":"another request"}`
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer srv.Close()
	robot := &Robot{BaseURL: srv.URL, Token: "a&b", HTTP: srv.Client()}

	answer = `{"errcode":0,"errmsg":"ok"}`
	require.NoError(t, robot.SendText(t.Context(), "hello"))
	answer = `{"errcode":410100,"errmsg":"slower"}`
	var rejected *RobotError
	require.ErrorAs(t, robot.SendText(t.Context(), "hello"), &rejected)
	require.Equal(t, RobotError{410100, "slower"}, *rejected)
	answer, status = "<html>", http.StatusBadGateway
	require.ErrorContains(t, robot.SendText(t.Context(), "hello"), "status 502, and an answer that is no JSON")
	srv.Close()
	err := robot.SendText(t.Context(), "hello")
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "access_token")
}
