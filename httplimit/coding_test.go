// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestOnlyReadable checks what leaves of an Accept-Encoding.
func TestOnlyReadable(t *testing.T) {
	for given, want := range map[string]string{
		"gzip":                            "gzip",
		"":                                "",
		"identity":                        "identity",
		"gzip, deflate, br, zstd":         "gzip, deflate",
		"br;q=1.0, gzip;q=0.8, *;q=0.1":   "gzip;q=0.8",
		"BR, GZip ; q=0.5":                "GZip ; q=0.5",
		"br":                              "identity",
		"zstd, dcb, dcz, compress":        "identity",
		"br, identity;q=0":                "identity",
		"br, gzip;q=0":                    "identity",
		"br, *;q=0":                       "identity",
		"*":                               "gzip",
		"*;q=0.5, br":                     "gzip;q=0.5",
		"gzip;q=0, *":                     "identity",
		"gzip, br;q=0":                    "gzip, br;q=0",
		"gzip, *;q=0":                     "gzip, *;q=0",
		"x-gzip, br, identity; q=0.000":   "x-gzip, identity; q=0.000",
		"br;q=x, deflate;q=0.0, identity": "deflate;q=0.0, identity",
	} {
		got, changed := onlyReadable([]string{given})
		if !changed {
			got = given
		}
		require.Equal(t, want, got, given)
		require.Equal(t, given != want, changed, given)
	}
	got, changed := onlyReadable([]string{"br, gzip", "zstd"})
	require.Equal(t, "gzip", got)
	require.True(t, changed)
}

// TestAcceptEncodingThatLeaves checks where the field is narrowed: where the body decides, and its change breaks nothing. The caller's
// request stays as it is.
func TestAcceptEncodingThatLeaves(t *testing.T) {
	const all, narrow = "gzip, br", "gzip"
	settled := func(w *world) []Option {
		l := w.limit("a", 100, time.Hour)
		l.Settle = used
		return []Option{rules(l)}
	}
	detects := func(d Detector) func(*world) []Option {
		return func(*world) []Option { return []Option{WithDetectors(d)} }
	}
	plain := func(*http.Request) {}
	for name, c := range map[string]struct {
		opts   func(*world) []Option
		change func(*http.Request)
		want   string
	}{
		"settled":           {settled, plain, narrow},
		"a detector":        {detects(says("x", 0, "")), plain, narrow},
		"the first of some": {detects(First(HTTPDetector(), says("x", 0, ""))), plain, narrow},
		"JSON":              {detects(Signature{Status: []int{429}, JSON: map[string]string{"a": "b"}}), plain, narrow},
		"XML":               {detects(Signature{Status: []int{503}, XML: map[string]string{"a": "b"}}), plain, narrow},
		"a wait":            {detects(Signature{Status: []int{429}, WaitFromBody: []string{"parameters.retry_after"}}), plain, narrow},
		"the status":        {detects(First(HTTPDetector(), Signature{Status: []int{429}})), plain, all},
		"no rule":           {func(*world) []Option { return nil }, plain, all},
		"not settled":       {func(w *world) []Option { return []Option{rules(w.limit("a", 100, time.Hour))} }, plain, all},
		"HEAD":              {settled, func(r *http.Request) { r.Method = "HEAD" }, all},
		"absent":            {settled, func(r *http.Request) { r.Header.Del("Accept-Encoding") }, ""},
		"signed": {settled, func(r *http.Request) {
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 SignedHeaders=Accept-Encoding;host, Signature=1")
		}, all},
		"signed in the URL": {settled, func(r *http.Request) { r.URL.RawQuery = "X-Amz-SignedHeaders=accept-encoding%3Bhost" }, all},
		"signed, RFC 9421":  {settled, func(r *http.Request) { r.Header.Set("Signature-Input", `sig1=("accept-encoding");created=1`) }, all},
		"signed without it": {settled, func(r *http.Request) {
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=1")
		}, narrow},
		"as it was written": {settled, func(r *http.Request) { r.Header = http.Header{"accept-encoding": {all}} }, narrow},
		"sent again as well": {func(w *world) []Option {
			return append(settled(w), WithRetry(1), WithDetectors(says("slow", time.Second, "")))
		}, plain, narrow},
	} {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			text := "slow"
			tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
				got := strings.Join(r.Header["Accept-Encoding"], "|") + strings.Join(r.Header[strings.ToLower("Accept-Encoding")], "|")
				require.Equal(t, c.want, got)
				defer func() { text = "done 1" }()
				return respond(200, "text/plain", text), nil
			}), c.opts(w)...)
			req := request(t, "GET", "http://x/", nil)
			req.Header.Set("Accept-Encoding", all)
			c.change(req)
			before := req.Header.Clone()
			resp := redistest.Must(tr.RoundTrip(req))(t)
			require.NoError(t, resp.Body.Close())
			require.Same(t, req, resp.Request)
			require.Equal(t, before, req.Header)
		})
	}
}

// TestBanInACoding: a ban in a coding that the caller accepts is seen, since the platform chooses among those that can be read. One that
// comes in another coding all the same is told by an event.
func TestBanInACoding(t *testing.T) {
	for name, c := range map[string]struct {
		forced bool
		calls  int
		unread int
	}{"chosen": {false, 1, 0}, "forced": {true, 3, 3}} {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			calls := 0
			tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
				calls++
				resp := respond(200, "text/plain", "\x0b\x05\x80banned\x03") // as if it were br
				if accepted := r.Header.Get("Accept-Encoding"); c.forced || strings.Contains(accepted, "br") {
					resp.Header.Set("Content-Encoding", "br")
				} else if strings.Contains(accepted, "gzip") {
					var b bytes.Buffer
					z := gzip.NewWriter(&b)
					redistest.Must(io.WriteString(z, "banned"))(t)
					require.NoError(t, z.Close())
					resp = respond(200, "text/plain", b.String())
					resp.Header.Set("Content-Encoding", "gzip")
				}
				return resp, nil
			}), WithMaxWait(0), WithDetectors(says("banned", time.Hour, "")), rules(w.limit("a", 9, time.Minute)))
			for range 3 {
				req := request(t, "GET", "http://x/", nil)
				req.Header.Set("Accept-Encoding", "br, gzip, zstd")
				if resp, err := tr.RoundTrip(req); err == nil {
					redistest.Must(io.ReadAll(resp.Body))(t)
					require.NoError(t, resp.Body.Close())
				}
			}
			require.Equal(t, c.calls, calls)
			unread := 0
			for _, e := range w.taken() {
				if e.Kind == EventUnread {
					unread++
					require.ErrorContains(t, e.Err, `the content coding "br" cannot be read`)
					require.Equal(t, 200, e.Status)
					require.Equal(t, "x", e.Host)
				}
			}
			require.Equal(t, c.unread, unread)
		})
	}
}
