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

	"github.com/goredisson/ratelimiter/internal/dinggate"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.Main(m)
}

// play runs the program.
func play(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Setenv("REDIS_URL", "")
	var out, errs strings.Builder
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
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
	code, out, errs := play(t, "-redis", rdb.Options().Addr, "-name", name, "-messages=30")
	// A message that the machine holds up on its way for longer than the profile's margin counts too late.
	redistest.Measured(t, !strings.Contains(lastLine(out), "penalties 1,"), "%s%s", out, errs)
	require.Zero(t, code, "%s%s", out, errs)
	require.Regexp(t, `sent 30 of 30, calls 30, penalties 0, calls during penalties 0; most in any 5s: (10|20) \(limit 20\)$`, lastLine(out))
	require.Empty(t, redistest.Must(rdb.Keys(t.Context(), "*"+name+"*").Result())(t), "left behind")
}

func TestOneCommand(t *testing.T) {
	code, out, errs := play(t, "-messages=20")
	require.Zero(t, code, "%s%s", out, errs)
	require.Contains(t, out, "20 messages from 3 services, 20 in any 5s, on an embedded Redis")
	require.Contains(t, lastLine(out), "sent 20 of 20, calls 20, penalties 0,")
}

// TestWithoutTheLimitTheRobotIsBanned checks that the gateway bans: without the limit the same services lose a robot
// and two messages of three.
func TestWithoutTheLimitTheRobotIsBanned(t *testing.T) {
	code, out, errs := play(t, "-limit=false")
	require.Equal(t, 1, code)
	require.Contains(t, out, "dingtalk: errcode 410100: ")
	require.Contains(t, lastLine(out), "sent 20 of 60, calls 60, penalties 1, calls during penalties 39;")
	require.Regexp(t, `^dingtalk: the robot was banned until .*, in 10m0s\n$`, errs)
}

// TestLostMessagesAreFound checks that a message that never reached DingTalk is no success, even if nobody was
// banned.
func TestLostMessagesAreFound(t *testing.T) {
	gate := redistest.Must(dinggate.Start())(t)
	defer func() { require.NoError(t, gate.Close()) }()
	d := &demo{messages: 2, out: io.Discard}
	robot := &Robot{BaseURL: gate.URL, Token: "R", HTTP: &http.Client{Transport: &http.Transport{}}}
	require.NoError(t, robot.SendText(t.Context(), "one"))
	require.EqualError(t, d.sumUp(t.Context(), gate, "R"), "1 of 2 messages were not sent")
	require.NoError(t, robot.SendText(t.Context(), "two"))
	require.NoError(t, d.sumUp(t.Context(), gate, "R"))
}

func TestUsage(t *testing.T) {
	for arg, want := range map[string]string{
		"-minute=2m": "a minute of 2m0s: one of them is out of its range", "-messages=0": "0 messages", "more": `arguments ["more"]`, "-x": "not defined",
	} {
		code, out, errs := play(t, arg)
		require.Equal(t, 2, code, arg)
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
	code, _, _ := play(t, "-help")
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
	require.Equal(t, 1, run(ctx, []string{"-redis="}, out, &errs))
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
	require.Error(t, robot.SendText(t.Context(), "hello"))
}
