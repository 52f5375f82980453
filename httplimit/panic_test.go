// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A slowBody delivers its bytes after a pause, so that the detectors see them in the goroutine that reads ahead.
type slowBody struct {
	closer
	pause time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.pause > 0 {
		time.Sleep(b.pause)
		b.pause = 0
	}
	return b.Reader.Read(p)
}

func slow(text string) (*http.Response, *slowBody) {
	resp := respond(200, "text/plain", text)
	body := &slowBody{closer{Reader: strings.NewReader(text)}, time.Second}
	resp.Body = body
	return resp, body
}

// panics returns the panics that the events tell of, by the function that panicked.
func (w *world) panics() (list []string) {
	for _, e := range w.taken() {
		var p *PanicError
		if e.Kind == EventPanicked && errors.As(e.Err, &p) {
			list = append(list, p.Func)
			require.NotEmpty(w.t, p.Stack)
			require.Contains(w.t, p.Error(), p.Func)
		}
	}
	return list
}

var mischief = map[string]func(){
	"panic":        func() { panic("mischief") },
	"error":        func() { panic(errors.New("mischief")) },
	"index":        func() { _ = []int{}[len(mischiefs)] },
	"AbortHandler": func() { panic(http.ErrAbortHandler) },
}

var mischiefs []int

// A selectFunc is a BodySelector that is functions.
type selectFunc struct {
	DetectorFunc
	needs func() bool
}

func (s selectFunc) NeedsBody(int, http.Header) bool { return s.needs() }

// TestPanickingDetector: a detector that panics has no say. The others are asked, the response reaches the caller
// byte for byte, its body is closed once, and an event tells of the panic, in RoundTrip and in the goroutine that
// reads a late body ahead.
func TestPanickingDetector(t *testing.T) {
	for fn, bad := range map[string]func(panics func()) Detector{
		"Detector.Detect": func(panics func()) Detector {
			return DetectorFunc(func(*Response) Verdict { panics(); return Verdict{} })
		},
		"BodySelector.NeedsBody": func(panics func()) Detector {
			return selectFunc{says("nothing", 0, "").(DetectorFunc), func() bool { panics(); return true }}
		},
	} {
		for name, panics := range mischief {
			for _, late := range []bool{false, true} {
				inWorldOf(t, fn+" "+name, func(t *testing.T, w *world) {
					resp, body := slow("slow down")
					if !late {
						body.pause = 0
					}
					tr := w.transport(base(func(*http.Request) (*http.Response, error) { return resp, nil }),
						WithDetectors(bad(panics), First(bad(panics), says("slow down", time.Minute, ""))), rules(w.limit("a", 9, time.Second)))
					_, text := get(t, tr, "http://x/")
					require.Equal(t, "slow down", text)
					require.EqualValues(t, 1, body.closed.Load())
					require.InDelta(t, time.Minute, w.until("a"), float64(2*time.Second), "the other detector was asked")
					require.Equal(t, []string{fn, fn}, w.panics())
				})
			}
		}
	}
}

// TestDetectorThatEndsItsGoroutine: a detector that calls runtime.Goexit, as a test's FailNow does, leaves no reader
// waiting.
func TestDetectorThatEndsItsGoroutine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { resp, _ := slow("text"); return resp, nil }),
			WithDetectors(DetectorFunc(func(*Response) Verdict { runtime.Goexit(); return Verdict{} })))
		_, text := get(t, tr, "http://x/")
		require.Equal(t, "text", text)
	})
}

// TestPanickingBody: a panic of the base's body is an error of Read, since nobody can recover it in the goroutine
// that reads ahead. What came before it is delivered, and the body is closed.
func TestPanickingBody(t *testing.T) {
	for name, panics := range mischief {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			body := &closer{Reader: io.MultiReader(strings.NewReader("start"), readerFunc(func([]byte) (int, error) { panics(); return 0, nil }))}
			tr := w.transport(base(func(*http.Request) (*http.Response, error) {
				resp := respond(200, "text/plain", "start and end")
				resp.Body = body
				return resp, nil
			}), WithDetectors(says("nothing", 0, "")))
			resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
			text, err := io.ReadAll(resp.Body)
			require.Equal(t, "start", string(text))
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.NoError(t, resp.Body.Close())
			require.EqualValues(t, 1, body.closed.Load())
			require.Equal(t, []string{"Response.Body.Read"}, w.panics())
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestPanickingRule: a request whose rules cannot be applied is rejected: nothing is sent nor spent, and its body is
// closed. A dry run sends it.
func TestPanickingRule(t *testing.T) {
	for name, change := range map[string]func(*Rule, func()){
		"Match.Func":       func(r *Rule, f func()) { r.Match.Func = func(*http.Request) bool { f(); return true } },
		"Limit.Key":        func(r *Rule, f func()) { r.Limits[1] = Limit{Key: func(*http.Request) string { f(); return "" }} },
		"Limit.WeightFunc": func(r *Rule, f func()) { r.Limits[1].WeightFunc = func(*http.Request) int64 { f(); return 1 } },
	} {
		for value, panics := range mischief {
			inWorldOf(t, name+" "+value, func(t *testing.T, w *world) {
				r := Rule{Name: "bad", Match: Match{Hosts: []string{"x"}}, Limits: []Limit{w.limit("a", 9, time.Second), w.limit("b", 9, time.Second)}}
				redistest.Must(w.client.RateLimiter(w.key+"a").TrySetRate(t.Context(), ratelimiter.Rate{Permits: 9, Interval: time.Second}))(t)
				change(&r, panics)
				sent := 0
				counted := base(func(r *http.Request) (*http.Response, error) { sent++; return ok(r) })
				body := &closer{Reader: strings.NewReader("x")}
				_, err := w.transport(counted, WithRules(r)).RoundTrip(request(t, "POST", "http://x/", body))
				require.ErrorIs(t, err, ErrRejected)
				require.ErrorContains(t, err, `"bad"`)
				var rejected *Error
				require.ErrorAs(t, err, &rejected)
				require.Equal(t, ReasonRule, rejected.Reason)
				var p *PanicError
				require.ErrorAs(t, err, &p)
				require.Equal(t, name, p.Func)
				require.Zero(t, sent)
				require.EqualValues(t, 1, body.closed.Load())
				require.EqualValues(t, 9, w.available("a"))
				require.Equal(t, []string{name}, w.panics())

				get(t, w.transport(counted, WithRules(r), WithDryRun()), "http://x/")
				require.Equal(t, 1, sent)
			})
		}
	}
}

// TestPanickingEvents: the hook loses an event at which it panics, and is told so once. Requests, bodies and
// cool-downs go on, also where the hook never stops panicking.
func TestPanickingEvents(t *testing.T) {
	for name, panics := range mischief {
		for _, always := range []bool{false, true} {
			inWorldOf(t, name, func(t *testing.T, w *world) {
				var body *slowBody
				tr := w.transport(base(func(*http.Request) (*http.Response, error) {
					var resp *http.Response
					resp, body = slow("slow down")
					return resp, nil
				}), WithDetectors(says("slow down", time.Minute, "")), rules(w.limit("a", 9, time.Second)),
					WithEvents(func(e Event) {
						w.event(e)
						if always || e.Kind != EventPanicked {
							panics()
						}
					}))
				_, text := get(t, tr, "http://x/")
				require.Equal(t, "slow down", text)
				require.EqualValues(t, 1, body.closed.Load())
				require.Equal(t, time.Minute, w.until("a").Truncate(time.Minute))
				require.Equal(t, []EventKind{EventGranted, EventPanicked, EventThrottled, EventPanicked, EventCoolDown, EventPanicked}, w.kinds())
			})
		}
	}
}

// TestPanickingGetBody: the request is not sent again, and the answer goes to its caller.
func TestPanickingGetBody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		body := &closer{Reader: strings.NewReader("slow down")}
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			resp := respond(200, "text/plain", "slow down")
			resp.Body = body
			return resp, nil
		}), WithRetry(1), WithDetectors(says("slow down", time.Second, "")), rules(w.limit("a", 9, time.Second)))
		req := request(t, "POST", "http://x/", strings.NewReader("hello"))
		req.GetBody = func() (io.ReadCloser, error) { panic("mischief") }
		resp := redistest.Must(tr.RoundTrip(req))(t)
		require.Equal(t, "slow down", string(redistest.Must(io.ReadAll(resp.Body))(t)))
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 1, body.closed.Load())
		require.Equal(t, []string{"Request.GetBody"}, w.panics())
	})
}

// TestZeroTransport: a Transport that New did not return rejects, closes the body, and says so.
func TestZeroTransport(t *testing.T) {
	for _, zero := range []*Transport{{}, nil} {
		closed := false
		req := redistest.Must(http.NewRequest("POST", "http://a.example/", closes{func() { closed = true }}))(t)
		resp, err := zero.RoundTrip(req)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		require.Nil(t, resp)
		require.True(t, closed)
		require.ErrorIs(t, zero.SetRules(), ratelimiter.ErrInvalidArgument)
		spread, requests := zero.DelaySpread("a.example")
		require.Zero(t, spread)
		require.Zero(t, requests)
		require.NotPanics(t, zero.CloseIdleConnections)
	}
}

// A closes is an empty body that tells when it is closed.
type closes struct{ told func() }

func (closes) Read([]byte) (int, error) { return 0, io.EOF }

func (c closes) Close() error {
	c.told()
	return nil
}
