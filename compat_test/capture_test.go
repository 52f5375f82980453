// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
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
