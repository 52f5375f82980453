// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestDemo runs the whole demo at full length, 21 s, in virtual time.
func TestDemo(t *testing.T) {
	inDemo(t, func(t *testing.T, d *demo, out *bytes.Buffer) {
		start := time.Now()
		require.NoError(t, d.run(t.Context()))
		require.Equal(t, 20_900*time.Millisecond, time.Since(start).Truncate(100*time.Millisecond))

		text := out.String()
		for _, want := range []string{
			"  0.00s  ann  num=2     200 granted  waited  0.00s  3 left\n",
			"  1.20s  dan  num=6     400 num=6 is more than the limiter's rate\n",
			"  1.50s  eve  num=two   400 num=\"two\" is no number",
			"  4.50s  gus  num=1     429 rejected waited  2.00s  0 left  Retry-After: 6\n",
			" 10.00s  fay  num=2     200 granted  waited  8.00s  0 left\n",
			" 10.80s  hal  num=3     200 granted  waited  7.80s  0 left\n",
			" 16.90s  jim  num=1     429 rejected waited  3.00s  0 left  Retry-After: 4\n",
			" 20.80s  ivy  num=4     200 granted  waited  8.80s  1 left\n",
			" 20.90s  jim  num=1     200 granted  waited  0.00s  0 left\n",
			"rate=5 interval=10000 type=0 keepAliveTime=0\n",
			"        value   {" + d.store.name + "}:value    3\n",
			"        permits {" + d.store.name + "}:permits  2@0.00s 2@0.40s 1@0.80s  as Bc0I\n",
			"7 granted (15 permits), 2 rejected, 3 bad\n",
		} {
			require.Contains(t, text, want)
		}
		require.Equal(t, "most in any 10s window: 5 (limit 5)", lastLine(t, out.Bytes()))
		require.NotContains(t, text, "\x1b")
		d.store.requireNoKeys(t)
	})
}

func TestDemoAsJSON(t *testing.T) {
	inDemo(t, func(t *testing.T, d *demo, out *bytes.Buffer) {
		d.view = &jsonView{out: out}
		require.NoError(t, d.run(t.Context()))

		events := map[string]int{}
		var last map[string]any
		for line := range bytes.Lines(out.Bytes()) {
			last = nil
			require.NoError(t, json.Unmarshal(line, &last), "%s", line)
			events[last["event"].(string)]++
			if last["client"] == "hal" && last["event"] == "answered" {
				require.EqualValues(t, 200, last["status"])
				require.EqualValues(t, 10_800, last["at_ms"])
				require.EqualValues(t, 7_800, last["took_ms"])
				a := last["answer"].(map[string]any)
				require.Equal(t, true, a["granted"])
				require.EqualValues(t, 0, a["available"])
				members := a["redis"].(map[string]any)["permits"].(map[string]any)["members"].([]any)
				require.Len(t, members, 2)
				require.EqualValues(t, 3, members[0].(map[string]any)["permits"])
			}
		}
		require.Equal(t, map[string]int{"begin": 1, "asked": 12, "answered": 12, "summary": 1}, events)
		require.Equal(t, "summary", last["event"])
		require.Equal(t, true, last["ok"])
		require.EqualValues(t, 5, last["most"])
		// The demo ends after the server has shut down, which checks every few ms whether its connections are idle.
		require.InDelta(t, 20_900, last["at_ms"], 50)
		require.Equal(t, "most in any 10s window: 5 (limit 5)", last["text"])
	})
}

// TestDemoFindsTooMany checks that the demo notices a limiter that admits more than the demo promises: it does not
// take the count from the limiter.
func TestDemoFindsTooMany(t *testing.T) {
	inDemo(t, func(t *testing.T, d *demo, out *bytes.Buffer) {
		l := clienttest.New(t, d.store.rdb).RateLimiter(d.store.name)
		require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 6, Interval: 10 * time.Second}))
		err := d.run(t.Context())
		require.ErrorContains(t, err, "the limit was exceeded")
		require.Equal(t, "most in any 10s window: 6 (limit 5)", lastLine(t, out.Bytes()))
	})
}

func TestDemoLosesRedis(t *testing.T) {
	var down atomic.Bool
	inDemo(t, func(t *testing.T, d *demo, out *bytes.Buffer) {
		d.steps = thePlay[:3]
		down.Store(true)
		require.ErrorContains(t, d.run(t.Context()), " got 503") // who is told first is chance
		require.Contains(t, out.String(), "503 ")
		require.Contains(t, out.String(), "3 without Redis")
	}, away(&down))
}

func TestDemoEndsInTime(t *testing.T) {
	inDemo(t, func(t *testing.T, d *demo, out *bytes.Buffer) {
		d.steps = []step{{client: "ann", num: "5"}, {client: "bob", num: "5"}, {client: "cat", num: "5"}}
		d.longest = 15 * time.Second
		start := time.Now()
		require.ErrorContains(t, d.run(t.Context()), "did not end within 15s")
		require.Less(t, time.Since(start), 18*time.Second)
	})
}

func TestDemoInterrupted(t *testing.T) {
	inDemo(t, func(t *testing.T, d *demo, out *bytes.Buffer) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		start := time.Now()
		require.Equal(t, command.ErrInterrupted, d.run(ctx))
		require.Less(t, time.Since(start), 6*time.Second)
		require.NotContains(t, out.String(), "most in any", "no verdict on half a demo")
		d.store.requireNoKeys(t)
	})
}

// TestServe checks that with --serve the demo makes no requests of its own, serves all others, and prints its summary
// when it is stopped.
func TestServe(t *testing.T) {
	inDemo(t, func(t *testing.T, d *demo, out *bytes.Buffer) {
		d.serve = true
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.run(ctx) }()

		transport := &http.Transport{DialContext: d.dial}
		defer transport.CloseIdleConnections()
		curl := &http.Client{Transport: transport}
		status := func(query string) int {
			resp := redistest.Must(curl.Get("http://x/require?" + query))(t)
			require.NoError(t, resp.Body.Close())
			return resp.StatusCode
		}
		time.Sleep(2 * time.Minute) // it does not stop by itself
		require.Equal(t, 200, status("num=4"))
		require.Equal(t, 429, status("num=2&timeout=1s"))
		require.Equal(t, 400, status("num="))
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		require.Equal(t, 503, status("num=3"), "waiting when the service ends")
		require.NoError(t, <-done)
		require.Contains(t, out.String(), "curl num=4     200 granted")
		require.Contains(t, out.String(), "1 granted (4 permits), 1 rejected, 1 bad, 1 without Redis")
		require.Equal(t, "most in any 10s window: 4 (limit 5)", lastLine(t, out.Bytes()))
	})
}

// TestDemoOverSockets runs the demo over real sockets and in real time, at a fifth of its length: the tally needs each
// response before the permits that it tells of are given back, so that a machine may stall for up to an interval.
func TestDemoOverSockets(t *testing.T) {
	rdb := embedded(t)
	var out bytes.Buffer
	d := newDemo(t, rdb, &out)
	d.options = nil
	d.rate.Interval = 2 * time.Second
	d.steps = scaled(thePlay, 1, 5)
	d.listen = func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	d.dial = new(net.Dialer).DialContext
	require.NoError(t, d.run(t.Context()), "%s", &out)
	require.Regexp(t, `^most in any 2s window: [1-5] \(limit 5\)$`, lastLine(t, out.Bytes()))
	require.Contains(t, out.String(), "400 ")
}

func TestAddressInUse(t *testing.T) {
	ln := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { require.NoError(t, ln.Close()) }()
	code, _, errs := rrl(t, "demo", "--addr", ln.Addr().String())
	require.Equal(t, command.ExitFailed, code)
	require.Regexp(t, `^rrl: .*address already in use\n$`, errs)
}

// TestCtrlC checks that a signal ends the program within a second or two, with one clear line and no verdict on half a demo.
func TestCtrlC(t *testing.T) {
	redistest.NoServer(t)
	for args, up := range map[string]string{
		"demo": `http://127.0.0.1:\d+`, "demo --json": `http://127.0.0.1:\d+`, "demo --serve": `http://127.0.0.1:\d+`,
		"demo dingtalk": `^[^{]`, "demo dingtalk --json": `^{"event":"begin",`, "demo --json dingtalk": `^{"event":"begin",`,
	} {
		t.Run(args, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], strings.Fields(args)...)
			cmd.Env = append(os.Environ(), asProgram+"=1", "REDIS_URL=")
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out := bufio.NewScanner(redistest.Must(cmd.StdoutPipe())(t))
			require.NoError(t, cmd.Start())
			for begun := false; !begun; begun = regexp.MustCompile(up).MatchString(out.Text()) {
				require.True(t, out.Scan(), "%s", &errs)
			}
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			ended := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			last := ""
			for out.Scan() {
				last = out.Text()
				require.NotContains(t, last, "summary")
			}
			require.NoError(t, out.Err())
			err := cmd.Wait()
			require.True(t, ended.Stop(), "had to be killed")
			if args == "demo --serve" {
				require.NoError(t, err)
				require.Empty(t, errs.String())
				require.Equal(t, "most in any 10s window: 0 (limit 5)", last)
				return
			}
			require.Equal(t, command.ExitInterrupted, cmd.ProcessState.ExitCode(), "%v %s", err, &errs)
			require.Equal(t, "rrl: interrupted\n", errs.String())
		})
	}
}
