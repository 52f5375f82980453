// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestSentTwiceAtMost has many idle connections to a platform that closes each on which a second request arrives. However many there are,
// a request arrives twice, and the next one is served.
func TestSentTwiceAtMost(t *testing.T) {
	const idle = 20
	var arrived, closes atomic.Int64
	var first sync.WaitGroup
	addr := redistest.Listen(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for i := 0; ; i++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			switch {
			case r.URL.Path == "/first":
				first.Done()
				first.Wait()
			case closes.Load() > 0:
				arrived.Add(1)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	client := clienttest.New(t, redistest.Client(t))
	defer client.Close()
	for _, method := range []string{"GET", "POST"} {
		closes.Store(0)
		arrived.Store(0)
		base := &http.Transport{MaxIdleConnsPerHost: idle}
		tr := redistest.Must(New(client, WithBase(base), WithRules(Rule{Limits: []Limit{{Name: redistest.Key(t) + method, Rate: ratelimiter.Rate{Permits: 100, Interval: time.Hour}}}})))(t)
		send := func(path string) error {
			var body io.Reader
			if method == "POST" {
				body = strings.NewReader(strings.Repeat("x", 40_000))
			}
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, body)
			require.NoError(t, err)
			r.Header.Set("Idempotency-Key", "1")
			resp, err := tr.RoundTrip(r)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				require.NoError(t, resp.Body.Close())
			}
			return err
		}
		first.Add(idle)
		var all sync.WaitGroup
		for range idle {
			all.Go(func() { _ = send("/first") }) // what is wrong with it shows in what follows
		}
		all.Wait()
		closes.Store(1)
		require.ErrorContains(t, send("/"), "sent 2 times", method)
		require.EqualValues(t, 2, arrived.Load(), method)
		closes.Store(0)
		require.NoError(t, send("/"), method)
		base.CloseIdleConnections()
	}
}
