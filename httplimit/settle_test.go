// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/stretchr/testify/require"
)

// used is a Settle: the number that a body ends with.
func used(resp *http.Response) int64 {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1
	}
	fields := strings.Fields(string(body))
	if len(fields) == 0 {
		return 1
	}
	n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	if err != nil {
		panic(err)
	}
	if n == 0 {
		runtime.Goexit()
	}
	return n
}

// TestSettleAtTheEnd checks when the permits of a request are settled, and by what.
func TestSettleAtTheEnd(t *testing.T) {
	long := strings.Repeat("word ", maxPeek)
	for name, c := range map[string]struct {
		body   string
		coding string
		read   func(t *testing.T, resp *http.Response)
		left   int64  // of 100, of which 10 were spent
		kept   string // why they stay, as the event says
	}{
		"less":           {body: "used 3", left: 97},
		"more":           {body: "used 30", left: 70},
		"the most":       {body: "used 10000", left: 0},
		"implausible":    {body: "used 10001", left: 90, kept: "10001 permits, which is more than the 10000"},
		"absurd":         {body: "used 4294967295", left: 90, kept: "4294967295 permits"},
		"unknown":        {body: "used -1", left: 90, kept: errNoNumber.Error()},
		"panic":          {body: "used many", left: 90, kept: "Limit.Settle panicked"},
		"goexit":         {body: "used 0", left: 90, kept: errNoNumber.Error()},
		"no body":        {body: "", left: 99},
		"a long stream":  {body: long + "used 4", left: 96},
		"closed at once": {body: "used 3", left: 90, kept: errNotRead.Error(), read: func(t *testing.T, resp *http.Response) { require.NoError(t, resp.Body.Close()) }},
		"closed early": {body: "used 3 and more", left: 90, kept: errNotRead.Error(), read: func(t *testing.T, resp *http.Response) {
			redistest.Must(io.ReadFull(resp.Body, make([]byte, 6)))(t)
			require.NoError(t, resp.Body.Close())
		}},
		"closed behind its last byte": {body: "used 3", left: 97, read: func(t *testing.T, resp *http.Response) {
			redistest.Must(io.ReadFull(resp.Body, make([]byte, 6)))(t)
			require.NoError(t, resp.Body.Close())
		}},
		"an unknown coding": {body: "used 3", coding: "br", left: 90, kept: `the content coding "br" cannot be read`},
		"a damaged coding":  {body: "used 3 and more", coding: "gzip", left: 90, kept: "gzip: invalid header"},
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
					resp.Header.Set("Content-Encoding", c.coding)
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
				var kept []string
				for _, e := range w.taken() {
					if e.Kind == EventUnsettled {
						kept = append(kept, e.Err.Error())
						require.Equal(t, w.key+"a", e.Limiter)
					}
				}
				if c.kept == "" {
					require.Empty(t, kept)
				} else {
					require.Len(t, kept, 1)
					require.Contains(t, kept[0], c.kept)
				}
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
		require.Equal(t, []EventKind{EventGranted, EventUnsettled}, w.kinds())
		fails = false
		ctx, cancel := context.WithCancel(t.Context())
		resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil).WithContext(ctx)))(t)
		cancel() // the caller has gone, and the permits come back all the same
		require.Equal(t, "used 3", string(redistest.Must(io.ReadAll(resp.Body))(t)))
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 90-3, w.available("a"))
		resp = redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
		w.taken()
		require.NoError(t, w.client.Close())
		redistest.Must(io.ReadAll(resp.Body))(t)
		require.NoError(t, resp.Body.Close())
		events := w.taken()
		require.Len(t, events, 1)
		require.Equal(t, EventUnsettled, events[0].Kind)
		require.Equal(t, w.key+"a", events[0].Limiter)
		require.Error(t, events[0].Err)
	})
}

// TestSettleStreams checks that a function sees each part of a body when the caller has it, that one which has returned holds nothing up, and
// that the trailer is there at the end.
func TestSettleStreams(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var seen strings.Builder
		var trailer string
		all, deaf := w.limit("a", 100, time.Hour), w.limit("b", 100, time.Hour)
		all.Weight, all.Settle = 10, func(resp *http.Response) int64 {
			_, err := io.Copy(&seen, resp.Body)
			trailer = resp.Trailer.Get("Used")
			require.NoError(t, err)
			return 3
		}
		deaf.Weight, deaf.Settle = 10, func(*http.Response) int64 { return 4 }
		body, _ := trickle(step{0, "first", nil}, step{time.Second, "second", io.EOF})
		tr := w.transport(base(func(*http.Request) (*http.Response, error) {
			resp := stream("text/event-stream", body)
			resp.Trailer = http.Header{"Used": {"3"}}
			return resp, nil
		}), rules(all, deaf))
		resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
		buf := make([]byte, 5)
		redistest.Must(io.ReadFull(resp.Body, buf))(t)
		require.Equal(t, "first", string(buf))
		synctest.Wait()
		require.Equal(t, "first", seen.String())
		redistest.Must(io.Copy(io.Discard, resp.Body))(t)
		require.Equal(t, time.Second, w.elapsed())
		require.Equal(t, "firstsecond", seen.String())
		require.Equal(t, "3", trailer)
		require.EqualValues(t, 97, w.available("a"))
		require.EqualValues(t, 96, w.available("b"))
		require.NoError(t, resp.Body.Close())
	})
}

// TestUnsentIsGivenBack: what a limit with Settle took for a request that a Quota then rejects comes back, since nothing was sent.
func TestUnsentIsGivenBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		settled, fixed := w.limit("a", 100, time.Hour), w.limit("b", 100, time.Hour)
		settled.Weight, settled.Settle, fixed.Quota = 10, used, deniedLate{}
		tr := w.transport(always("used 3"), rules(settled, fixed), WithMaxWait(0))
		rejected(t, tr, request(t, "GET", "http://x/", nil))
		require.EqualValues(t, 100, w.available("a"))
		require.EqualValues(t, 99, w.available("b"))
	})
}

// A deniedLate quota looks as if it granted, and does not.
type deniedLate struct{ limit.Limiter }

func (deniedLate) Peek(context.Context, int64) (ratelimiter.Result, error) {
	return ratelimiter.Result{Granted: true}, nil
}

func (deniedLate) Allow(context.Context, int64) (ratelimiter.Result, error) {
	return ratelimiter.Result{}, nil
}
