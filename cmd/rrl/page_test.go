// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// page runs rrl page until the test ends, and returns its address.
func (l *live) page(args ...string) string {
	l.Helper()
	l.Setenv("REDIS_URL", l.url)
	ctx, stop := context.WithCancel(l.Context())
	var out, errs redistest.Log
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"rrl", "page", "--listen", "127.0.0.1:0"}, args...), &out, &errs)
	}()
	l.Cleanup(func() {
		stop()
		require.Equal(l, command.ExitOK, <-code, errs.String())
	})
	return out.Await(l, `^(http://\S+/) shows the limiters of`)[1]
}

func fetch(t *testing.T, url, host, password string) (status int, body string) {
	t.Helper()
	r := redistest.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	r.Host = cmp.Or(host, r.Host)
	if password != "" {
		r.SetBasicAuth("oncall", password)
	}
	reply := redistest.Must(http.DefaultClient.Do(r))(t)
	defer func() { _ = reply.Body.Close() }()
	text := redistest.Must(io.ReadAll(reply.Body))(t)
	return reply.StatusCode, string(text)
}

func TestPage(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"orders", tenAMinute)
	url := l.page("--title", "the test")
	status, body := fetch(t, url+"?q="+l.base, "", "") // other tests have left limiters, too
	require.Equal(t, http.StatusOK, status)
	for !strings.Contains(body, l.base+"orders") { // the page does not wait for a look at all keys that takes long
		_, body = fetch(t, url+"?q="+l.base, "", "")
	}
	require.Contains(t, body, "the test")
	require.Contains(t, body, "This page only reads.")
	_, body = fetch(t, url+"limiter?name="+l.base+"orders", "", "")
	require.Contains(t, body, "rrl watch "+l.base+"orders"+l.at()+"</code>")
	for host, want := range map[string]int{"localhost": 200, "localhost:7380": 200, "[::1]:7380": 200, "127.0.0.1": 200, "evil.example": 421, "evil.example:80": 421, "192.0.2.1": 421} {
		status, _ = fetch(t, url, host, "")
		require.Equal(t, want, status, host)
	}
}

func TestPageWithAToken(t *testing.T) {
	l := newLive(t)
	token := strings.Repeat("t", 20)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\nrest"), 0o600))
	url := l.page("--token-file", file, "--write")
	status, _ := fetch(t, url, "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, body := fetch(t, url, "limits.example", token)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "This page can change limiters.")
	require.NoError(t, os.WriteFile(file, []byte("\xef\xbb\xbf short \n"), 0o600))
	l.ends(command.ExitUsage, "the token has 5 bytes; it has at least 16", "page", "--token-file", file)
}
