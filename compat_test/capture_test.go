// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
// It does so at the first call for a version; later calls return the same capture, by the peer's operations. Those that the
// version lacks are absent. None is kept in this repository.
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
	server := redistest.Start(t) // one that knows no script, so that the client sends its text
	w := &wiretap{texts: map[string]string{}}
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.Judge(w.judge)
	p := startPeer(t, v, proxy.Addr())
	out := capture{}
	for _, c := range [][]any{
		{"trySetRate", "OVERALL", captureRate, captureInterval},
		{"setRate", "OVERALL", captureRate, captureInterval},
		{"setRateArgs", "OVERALL", captureRate, captureInterval, "-", true},
		{"updateRate", "OVERALL", captureRate, captureInterval, "-", true},
		{"tryAcquire", capturePermits},
		{"availablePermits"},
		{"release", capturePermits},
		{"expire", time.Hour},
		{"clearExpire"},
	} {
		operation := c[0].(string)
		w.next()
		if _, err := p.call(operation, append([]any{captureName}, c[1:]...)...); !unsupported(err) {
			require.NoError(t, err, operation)
			call := w.next()
			require.NotNil(t, call, "%s runs no script", operation)
			out[operation] = *call
		}
	}
	return out
}

// A scriptCall is one EVAL, or one EVALSHA of a text that was loaded.
type scriptCall struct {
	text       string
	keys, args []string
}

// A wiretap remembers the last script that clients of a proxy have sent.
type wiretap struct {
	mu    sync.Mutex
	texts map[string]string // by SHA-1
	call  *scriptCall
}

func (w *wiretap) judge(words []string) (f redistest.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := ""
	switch strings.ToUpper(words[0]) {
	case "SCRIPT":
		if strings.EqualFold(words[1], "LOAD") {
			w.texts[redis.NewScript(words[2]).Hash()] = words[2]
		}
	case "EVAL":
		text = words[1]
		w.texts[redis.NewScript(text).Hash()] = text
	case "EVALSHA":
		text = w.texts[words[1]] // Redis replies NOSCRIPT to an unknown one
	}
	if text != "" {
		n, _ := strconv.Atoi(words[2])
		w.call = &scriptCall{text, words[3 : 3+n], words[3+n:]}
	}
	return f
}

// next returns the last call since it was called before.
func (w *wiretap) next() (call *scriptCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	call, w.call = w.call, nil
	return call
}
