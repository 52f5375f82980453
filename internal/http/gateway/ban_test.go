// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	dingtalk "github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestBanThroughTheGateway checks that a robot's ban is seen in every coding that the platform may choose by what the gateway asks for, and that
// the client gets it byte for byte. One that comes in another coding all the same is passed on, and told by an event.
func TestBanThroughTheGateway(t *testing.T) {
	const ban = `{"errcode":410100,"errmsg":"send too fast"}`
	packed := func(pack func(io.Writer) io.WriteCloser) string {
		var b bytes.Buffer
		z := pack(&b)
		redistest.Must(io.WriteString(z, ban))(t)
		require.NoError(t, z.Close())
		return b.String()
	}
	bodies := map[string]string{ // the last two are the output of the brotli and zstd tools
		"":        ban,
		"gzip":    packed(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }),
		"deflate": packed(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }),
		"br":      "\v\x15\x80" + ban + "\x03",
		"zstd":    "(\xb5/\xfd\x04\x00Y\x01\x00" + ban + "\xa0j\xd9\xcf",
	}
	for _, row := range []struct {
		accepts string   // of the client
		chooses []string // of the platform, the first that it is asked for; the last one whatever it is asked for
		coding  string   // of the response
		calls   int
	}{
		{"gzip, deflate, br, zstd", []string{"zstd", "br", "gzip", ""}, "gzip", 1},
		{"gzip, deflate, br, zstd", []string{"zstd", "br", "deflate", ""}, "deflate", 1},
		{"br, zstd", []string{"zstd", "br", "gzip", ""}, "", 1},
		{"", []string{""}, "", 1},
		{"br", []string{"br"}, "br", 3},
		{"gzip, zstd", []string{"zstd"}, "zstd", 3},
	} {
		inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
			calls, unread := 0, 0
			g := redistest.Must(New(client, dingtalk.DingTalkRobot().Rules, WithMaxWait(0), WithTransport(httplimit.WithEvents(func(e httplimit.Event) {
				if e.Kind == httplimit.EventUnread {
					unread++
				}
			})), WithBase(platform(func(r *http.Request) (*http.Response, error) {
				calls++
				coding := row.chooses[len(row.chooses)-1]
				if i := slices.IndexFunc(row.chooses, func(c string) bool {
					return c != "" && strings.Contains(r.Header.Get("Accept-Encoding"), c)
				}); i >= 0 {
					coding = row.chooses[i]
				}
				h := http.Header{"Content-Type": {"application/json"}}
				if coding != "" {
					h.Set("Content-Encoding", coding)
				}
				body := bodies[coding]
				return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}, nil
			}))))(t)
			for i := range 3 {
				w := do(g, "POST", "/oapi.dingtalk.com/robot/send?access_token="+name, "Accept-Encoding", row.accepts)
				if i < row.calls {
					require.Equal(t, bodies[row.coding], w.Body.String())
					require.Equal(t, row.coding, w.Header().Get("Content-Encoding"))
					require.False(t, ours(w))
					continue
				}
				require.Equal(t, 429, w.Code)
				require.True(t, ours(w))
				require.Equal(t, "600", w.Header().Get("Retry-After"))
			}
			require.Equal(t, row.calls, calls, "%v", row)
			require.Equal(t, row.calls == 3, unread == 3, "%v", row)
		})
	}
}
