// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A capture maps operations to what the jar of one version sends for them, on a limiter called captureName.
type capture map[string]scriptCall

const (
	captureName     = "captured"
	capturePermits  = 3
	captureRate     = 7
	captureInterval = 70 * time.Second
)

// captured holds the captures by version. Each of them takes a server and a JVM.
var captured sync.Map // func(t testing.TB) capture

// captureScripts runs each operation of a version once, on a server of its own, and takes its script from the wire.
// It does so at the first call for a version; later calls return the same capture. The labels are the peer's
// operations. Operations that the version lacks and those that are plain commands are absent.
func captureScripts(t testing.TB, v version) capture {
	t.Helper()
	var once sync.Mutex
	var c capture
	get, _ := captured.LoadOrStore(v.name, func(t testing.TB) capture {
		once.Lock()
		defer once.Unlock()
		if c == nil {
			c = captureNow(t, v)
		}
		return c
	})
	return get.(func(testing.TB) capture)(t)
}

func captureNow(t testing.TB, v version) capture {
	t.Helper()
	server := redistest.Start(t)
	recorder := startRecorder(t, server.Addr())
	p := startPeer(t, v, recorder.addr)
	out := capture{}
	at := time.Now().Add(time.Hour).UnixMilli()
	for _, c := range [][]any{
		{"trySetRate", "OVERALL", captureRate, captureInterval},
		{"setRate", "OVERALL", captureRate, captureInterval},
		{"setRateArgs", "OVERALL", captureRate, captureInterval, "-", true},
		{"updateRate", "OVERALL", captureRate, captureInterval, "-", true},
		{"tryAcquire", capturePermits},
		{"acquire", capturePermits},
		{"availablePermits"},
		{"release", capturePermits},
		{"getConfig"},
		{"remainTimeToLive"},
		{"expire", time.Hour},
		{"expireAt", at},
		{"expireIfSet", time.Hour},
		{"expireIfNotSet", time.Hour},
		{"expireIfGreater", time.Hour},
		{"expireIfLess", time.Hour},
		{"expireAtIfSet", at},
		{"getExpireTime"},
		{"clearExpire"},
		{"isExists"},
		{"delete"},
	} {
		operation := c[0].(string)
		recorder.during(operation, func() {
			_, err := p.call(operation, append([]any{captureName}, c[1:]...)...)
			if !unsupported(err) {
				require.NoError(t, err, operation)
				require.NotEmpty(t, recorder.sent(operation), "%s says nothing to Redis", operation)
			}
		})
		if calls := recorder.calls(operation); len(calls) > 0 {
			require.Len(t, calls, 1, operation)
			out[operation] = calls[0]
		}
	}
	return out
}

// TestCapture checks that the scripts can be read from the wire, and that the values that the differential run has to
// set are where it expects them in KEYS and ARGV.
func TestCapture(t *testing.T) {
	t.Parallel()
	versionsAbreast(t, func(t testing.TB, v version) {
		scripts := captureScripts(t, v)
		want := []string{"trySetRate", "setRate", "tryAcquire", "acquire", "availablePermits"}
		want = append(want, "expire", "expireAt", "clearExpire")
		if v.since("3.20.1") {
			want = append(want, "expireIfSet", "expireIfNotSet", "expireIfGreater", "expireIfLess", "expireAtIfSet")
		}
		if v.since("3.52.0") {
			want = append(want, "release")
		}
		if v.since("4.4.0") {
			want = append(want, "setRateArgs", "updateRate")
		}
		for _, operation := range want {
			call, ok := scripts[operation]
			require.True(t, ok, "%s runs no script", operation)
			require.NotEmpty(t, call.text)
			require.Contains(t, call.keys, captureName, operation)
			require.Contains(t, call.text, "redis.call", operation)
			require.Equal(t, v.since("3.52.0"), call.bySHA, operation)
		}

		acquire := scripts["tryAcquire"]
		require.Len(t, acquire.keys, 5)
		require.Equal(t, []string{captureName, "{" + captureName + "}:value"}, acquire.keys[:2])
		require.Equal(t, "{"+captureName+"}:permits", acquire.keys[3])
		require.True(t, strings.HasPrefix(acquire.keys[2], "{"+captureName+"}:value:"))
		require.True(t, strings.HasPrefix(acquire.keys[4], "{"+captureName+"}:permits:"))
		require.Len(t, acquire.args, 3, "permits, now, random")
		require.Equal(t, strconv.Itoa(capturePermits), acquire.args[0])
		requireInstant(t, acquire.args[1])
		require.Equal(t, acquire.text, scripts["acquire"].text)

		available := scripts["availablePermits"]
		require.Equal(t, acquire.keys, available.keys)
		require.Len(t, available.args, 1, "now")
		requireInstant(t, available.args[0])
	})
}

// begun is when this process began, before any capture.
var begun = time.Now()

func requireInstant(t testing.TB, arg string) {
	t.Helper()
	now := redistest.Must(strconv.ParseInt(arg, 10, 64))(t)
	require.GreaterOrEqual(t, now, begun.UnixMilli()-1)
	require.LessOrEqual(t, now, time.Now().UnixMilli()+1)
}
