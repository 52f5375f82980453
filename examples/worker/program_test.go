// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// play runs the program; its workers are processes of this test binary.
func play(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Setenv(asProgram, "1")
	t.Setenv("REDIS_URL", "")
	var out, errs strings.Builder
	code = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// TestOneCommand runs the program as `go run ./examples/worker` does, in a fifth of the time.
func TestOneCommand(t *testing.T) {
	code, out, errs := play(t, "-jobs=30", "-rate=20/200ms", "-abandoned=600ms")
	require.Zero(t, code, "%s%s", out, errs)
	for line := range strings.Lines(errs) {
		require.Contains(t, line, `level=INFO msg="rate limiter: started"`)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Equal(t, "30 jobs for 4 workers on an embedded Redis, OVERALL 20/200ms gap 10ms", lines[0])
	require.Regexp(t, `30 of 30 jobs done, 0 lost, \d more than once; 1 of 5 workers killed; most in any 200ms: \d+ \(limit 20\)$`, lines[len(lines)-1])
	require.Regexp(t, `w\d is killed in the middle of job-\d+`, out)
	require.Regexp(t, `w\d does again job-\d+`, out)
}

// TestKilledWorkersLoseNothing runs on the lane's server. The workers are processes, and five of them die of SIGKILL
// in the middle of a job. Every job is done, and the limit is kept.
func TestKilledWorkersLoseNothing(t *testing.T) {
	rdb := redistest.Client(t)
	name := redistest.Key(t)
	code, out, errs := play(t, "-redis", rdb.Options().Addr, "-name", name,
		"-jobs=60", "-workers=4", "-kills=5", "-rate=10/200ms", "-abandoned=600ms")
	require.Zero(t, code, "%s%s", out, errs)
	require.Contains(t, out, "60 of 60 jobs done, 0 lost")
	require.Contains(t, out, "5 of 9 workers killed")
	require.Equal(t, 5, strings.Count(out, "is killed in the middle of job-"))
	// A job that was done before its worker died, while this process was slow, is not done again.
	require.Contains(t, out, "does again job-")
	require.Empty(t, redistest.Must(rdb.Keys(t.Context(), "*"+name+"*").Result())(t), "left behind")
}

func TestInterrupted(t *testing.T) {
	t.Setenv(asProgram, "1")
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	w := writer(func(b []byte) {
		if out.Write(b); strings.Contains(string(b), "killed") {
			cancel()
		}
	})
	var errs strings.Builder
	require.Equal(t, 1, run(ctx, []string{"-redis="}, strings.NewReader(""), w, &errs))
	require.Contains(t, errs.String(), "context canceled")
	require.NotContains(t, out.String(), "jobs done", "a verdict on half a run")
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func TestUsage(t *testing.T) {
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"-jobs=0":                    {2, "one of them is out of its range"},
		"-rate=101/s":                {2, "one of them is out of its range"},
		"-rate=20":                   {2, `the rate "20" is not in the form 10/s, 100/1m30s or 1000/day`},
		"more":                       {2, `it takes no argument "more"`},
		"-help":                      {0, "of a Redis, or host:port; empty for that of REDIS_URL, or else an embedded one"},
		"-redis=127.0.0.1:1 -jobs=1": {1, "connection refused"},
		"-jobs=2 -kills=1 -rate=20/100ms -busy=1ms": {1, "give it more jobs"},
	} {
		code, out, errs := play(t, strings.Fields(args)...)
		require.Equal(t, c.code, code, args)
		require.Contains(t, errs, c.want)
		require.True(t, out == "" || code == 1, args)
	}
}
