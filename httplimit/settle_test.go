// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// used is a Settle: the number that a body ends with.
func used(resp *http.Response) int64 {
	body, _ := io.ReadAll(resp.Body) // of bytes in memory
	fields := strings.Fields(string(body))
	if len(fields) == 0 {
		return 1
	}
	n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// TestSettleAtTheEnd checks when the permits of a request are settled, and by what.
func TestSettleAtTheEnd(t *testing.T) {
	long := strings.Repeat("word ", MaxPeek)
	for name, c := range map[string]struct {
		body string
		read func(t *testing.T, resp *http.Response)
		left int64 // of 100, of which 10 were spent
	}{
		"less":           {body: "used 3", left: 97},
		"more":           {body: "used 30", left: 70},
		"unknown":        {body: "used -1", left: 90},
		"panic":          {body: "used many", left: 90},
		"no body":        {body: "", left: 99},
		"a long stream":  {body: long + "used 4", left: 96},
		"closed at once": {body: "used 3", left: 99, read: func(t *testing.T, resp *http.Response) { require.NoError(t, resp.Body.Close()) }},
		"not closed": {body: "used 3", left: 97, read: func(t *testing.T, resp *http.Response) {
			redistest.Must(io.Copy(io.Discard, resp.Body))(t)
		}},
		"not read": {body: "used 3", left: 90, read: func(*testing.T, *http.Response) {}},
	} {
		for _, two := range []bool{false, true} {
			inWorldOf(t, name+", two "+strconv.FormatBool(two), func(t *testing.T, w *world) {
				l := w.limit("a", 100, time.Hour)
				l.Weight, l.Settle = 10, used
				limits := []Limit{l}
				if two {
					limits = append(limits, w.limit("b", 100, time.Hour))
				}
				tr := w.transport(base(func(*http.Request) (*http.Response, error) {
					resp := respond(200, "text/event-stream", c.body)
					if c.body == "" {
						resp.Body = http.NoBody
					}
					return resp, nil
				}), rules(limits...))
				resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
				if c.read == nil {
					require.Equal(t, c.body, string(redistest.Must(io.ReadAll(resp.Body))(t)))
					require.NoError(t, resp.Body.Close())
				} else {
					c.read(t, resp)
				}
				require.Equal(t, c.left, w.available("a"))
				if two {
					require.EqualValues(t, 99, w.available("b"))
				}
			})
		}
	}
}

// TestSettleSharedLimiter checks that limits which name one limiter settle their parts of it.
func TestSettleSharedLimiter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		settled, fixed := w.limit("a", 100, time.Hour), w.limit("a", 100, time.Hour)
		settled.Weight, settled.Settle, fixed.Weight = 10, used, 5
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { return respond(200, "text/plain", "used 3"), nil }), rules(settled, fixed))
		get(t, tr, "http://x/")
		require.EqualValues(t, 92, w.available("a"))
	})
}

// TestUnsettled checks that a settlement which failed is told, and that a request without a response stays as it was.
func TestUnsettled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.limit("a", 100, time.Hour)
		l.Weight, l.Settle = 10, used
		fails := true
		tr := w.transport(base(func(*http.Request) (*http.Response, error) {
			if fails {
				return nil, errors.New("no route")
			}
			return respond(200, "text/plain", "used 3"), nil
		}), rules(l))
		_, err := tr.RoundTrip(request(t, "GET", "http://x/", nil))
		require.Error(t, err)
		require.EqualValues(t, 90, w.available("a"))
		fails = false
		ctx, cancel := context.WithCancel(t.Context())
		resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil).WithContext(ctx)))(t)
		cancel() // the caller has gone, and the permits come back all the same
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 90-1, w.available("a"))
		resp = redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
		w.taken()
		require.NoError(t, w.client.Close())
		require.NoError(t, resp.Body.Close())
		events := w.taken()
		require.Len(t, events, 1)
		require.Equal(t, EventUnsettled, events[0].Kind)
		require.Equal(t, w.key+"a", events[0].Limiter)
		require.Error(t, events[0].Err)
	})
}
