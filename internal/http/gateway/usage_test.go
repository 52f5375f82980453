// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	llm "github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A model is a platform of a language model, behind a gateway, on loopback and over one version of HTTP. It streams what is more than a
// start or a tail of a body holds, in gzip if the client takes it.
type model struct {
	front  *httptest.Server
	client *http.Client
	url    string
	got    chan string // what it was asked for of encodings
	events chan httplimit.Event
	tokens *ratelimiter.RateLimiter
}

const (
	modelStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":50000,\"output_tokens\":1}}}\n\n"
	modelWord  = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"partial_json\":\"{\\\"total_tokens\\\":1}\"}}\n\n"
	modelEnd   = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":600}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

func newModel(t *testing.T, h2 bool) *model {
	m := &model{got: make(chan string, 1), events: make(chan httplimit.Event, 100)}
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepts := r.Header.Get("Accept-Encoding")
		m.got <- accepts
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Trailer", "X-Took")
		var out io.Writer = w
		switch {
		case strings.Contains(accepts, "br"):
			w.Header().Set("Content-Encoding", "br")
		case strings.Contains(accepts, "gzip"):
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			out = z
		}
		flush := func() {
			if z, ok := out.(*gzip.Writer); ok {
				_ = z.Flush()
			}
			_ = http.NewResponseController(w).Flush()
		}
		fmt.Fprint(out, modelStart)
		flush()
		if r.URL.Query().Has("hangs") {
			<-r.Context().Done()
			return
		}
		for range 1000 {
			fmt.Fprint(out, modelWord)
		}
		fmt.Fprint(out, modelEnd)
		w.Header().Set("X-Took", "1s")
	}))
	upstream.EnableHTTP2 = h2
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	client := clienttest.New(t, redistest.Client(t))
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	account := redistest.Key(t)
	profile := llm.Anthropic(account, llm.WithHosts("127.0.0.1"), llm.WithTokens(1_000_000, func(*http.Request) int64 { return 5000 }))
	base := upstream.Client().Transport.(*http.Transport).Clone()
	base.DisableCompression = true // as the default
	g := redistest.Must(New(client, profile.Rules, WithAllow(upstream.URL), WithBase(base),
		WithTransport(httplimit.WithEvents(func(e httplimit.Event) { m.events <- e }))))(t)
	m.tokens = client.RateLimiter("{anthropic}:tokens:" + account + ":1m")
	m.front = httptest.NewUnstartedServer(g)
	p := &http.Protocols{}
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	m.front.Config.Protocols = p
	m.front.Start()
	t.Cleanup(m.front.Close)
	m.client = &http.Client{Transport: &http.Transport{Protocols: p, DisableCompression: true}}
	t.Cleanup(m.client.CloseIdleConnections)
	m.url = m.front.URL + "/" + strings.TrimPrefix(upstream.URL, "https://") + "/v1/messages"
	return m
}

func (m *model) send(t *testing.T, query, encodings string) *http.Response {
	req := redistest.Must(http.NewRequestWithContext(t.Context(), "POST", m.url+query, nil))(t)
	if encodings != "" {
		req.Header.Set("Accept-Encoding", encodings)
	}
	return redistest.Must(m.client.Do(req))(t)
}

// unsettled returns the events of estimates that stay, of those that there have been.
func (m *model) unsettled() (list []httplimit.Event) {
	for {
		select {
		case e := <-m.events:
			if e.Kind == httplimit.EventUnsettled {
				list = append(list, e)
			}
		default:
			return list
		}
	}
}

// TestUsageThroughTheGateway checks that the tokens of a stream are settled whatever encodings the client accepts, that the client gets
// the stream and its trailer as they were sent, and that the estimate of a client which leaves stays and is told.
func TestUsageThroughTheGateway(t *testing.T) {
	plain := modelStart + strings.Repeat(modelWord, 1000) + modelEnd
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) {
			m := newModel(t, h2)
			left := int64(1_000_000)
			for _, c := range [][2]string{{"", ""}, {"gzip", "gzip"}, {"gzip, deflate, br, zstd", "gzip, deflate"}, {"br, zstd", "identity"}, {"identity", "identity"}} {
				resp := m.send(t, "", c[0])
				body := redistest.Must(io.ReadAll(resp.Body))(t)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, c[1], <-m.got, c[0])
				require.Equal(t, "1s", resp.Trailer.Get("X-Took"))
				if strings.Contains(c[1], "gzip") {
					require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
					body = redistest.Must(io.ReadAll(redistest.Must(gzip.NewReader(bytes.NewReader(body)))(t)))(t)
				}
				require.Equal(t, plain, string(body))
				left -= 50_600
				require.Equal(t, left, redistest.Must(m.tokens.AvailablePermits(t.Context()))(t), c[0])
				require.Empty(t, m.unsettled())
			}
			resp := m.send(t, "?hangs", "gzip")
			redistest.Must(io.ReadFull(resp.Body, make([]byte, 20)))(t)
			require.NoError(t, resp.Body.Close())
			for e := range m.events {
				if e.Kind == httplimit.EventUnsettled {
					break
				}
			}
			require.Equal(t, left-5000, redistest.Must(m.tokens.AvailablePermits(t.Context()))(t))
		})
	}
}
