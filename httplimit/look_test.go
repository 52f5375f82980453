// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A step is what a body brings, and when.
type step struct {
	after time.Duration
	text  string
	err   error // ends the body
}

// trickle is a body that comes in steps. Its Close lets a read on its way end, as net/http's does.
func trickle(steps ...step) (io.ReadCloser, *bool) {
	r, w := io.Pipe()
	closed := new(bool)
	go func() {
		for _, s := range steps {
			time.Sleep(s.after)
			if s.text != "" {
				if _, err := io.WriteString(w, s.text); err != nil {
					return
				}
			}
			if s.err != nil {
				w.CloseWithError(s.err)
			}
		}
	}()
	return &pipeBody{r, closed}, closed
}

type pipeBody struct {
	*io.PipeReader
	closed *bool
}

func (b *pipeBody) Close() error { *b.closed = true; return b.PipeReader.Close() }

func stream(contentType string, body io.ReadCloser) *http.Response {
	r := respond(200, contentType, "")
	r.Body, r.ContentLength = body, -1
	return r
}

// record is a detector that keeps what it saw.
func record(w *world, list *[]string) Detector {
	return DetectorFunc(func(r *Response) Verdict {
		w.mu.Lock()
		defer w.mu.Unlock()
		s := string(r.Body)
		if !r.Complete {
			s += "…"
		}
		*list = append(*list, s+"@"+w.elapsed().String())
		return Verdict{}
	})
}

// A stream of JSON is held back for 50 ms and no longer; then each piece reaches the caller as it comes.
// The detector sees the whole when it has come.
func TestStreamsAreNotHeldUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		body, _ := trickle(step{0, "a", nil}, step{time.Second, "b", nil}, step{time.Second, "c", io.EOF})
		var seen []string
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { return stream("application/json", body), nil }),
			WithDetectors(record(w, &seen)))
		resp, err := tr.RoundTrip(request(t, "GET", "http://x/", nil))
		require.NoError(t, err)
		require.Equal(t, 50*time.Millisecond, w.elapsed())
		var at []time.Duration
		var text string
		for buf := make([]byte, 10); err == nil; {
			var n int
			n, err = resp.Body.Read(buf)
			text += string(buf[:n])
			at = append(at, w.elapsed())
		}
		require.Equal(t, io.EOF, err)
		require.Equal(t, "abc", text)
		require.Equal(t, []time.Duration{50 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second}, at)
		require.Equal(t, []string{"abc@2s"}, seen)
		require.NoError(t, resp.Body.Close())
	})
}

// Streams of events, files and images are not looked into, unless a detector says so itself.
func TestWhichBodiesAreLookedInto(t *testing.T) {
	for contentType, want := range map[string]bool{
		"": true, "application/json": true, "application/json; charset=utf-8": true, "application/problem+json": true,
		"text/html": true, "text/plain; charset=GBK": true, "TEXT/XML": true, "application/soap+xml": true, "text/plain; q": true,
		"text/event-stream": false, "application/x-ndjson": false, "application/octet-stream": false, "image/png": false,
		"application/grpc": false, "application/stream+json": false, "multipart/x-mixed-replace": false, "video/mp4": false,
	} {
		require.Equal(t, want, envelope.IsText(contentType), contentType)
		inWorld(t, func(t *testing.T, w *world) {
			body, closed := trickle(step{time.Hour, "late", io.EOF})
			var seen []string
			tr := w.transport(base(func(*http.Request) (*http.Response, error) { return stream(contentType, body), nil }),
				WithDetectors(record(w, &seen)))
			resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
			if !want {
				require.Zero(t, w.elapsed(), contentType)
				require.Equal(t, []string{"…@0s"}, seen, "the header is looked at")
				require.Equal(t, body, resp.Body)
			}
			require.NoError(t, resp.Body.Close())
			require.True(t, *closed)
			time.Sleep(2 * time.Hour) // the writer ends
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { return respond(200, "text/event-stream", "x"), nil }),
			WithDetectors(&selector{want: true}))
		resp, text := get(t, tr, "http://x/")
		require.IsType(t, &peekedBody{}, resp.Body)
		require.Equal(t, "x", text)
		tr = w.transport(base(ok), WithDetectors(&selector{want: false}))
		resp, _ = get(t, tr, "http://x/")
		require.IsType(t, io.NopCloser(strings.NewReader("")), resp.Body)
	})
}

type selector struct{ want bool }

func (s *selector) Detect(*Response) Verdict        { return Verdict{} }
func (s *selector) NeedsBody(int, http.Header) bool { return s.want }

// The verdict comes when the caller never reads the body, whether or not it closes it.
func TestVerdictWithoutAReader(t *testing.T) {
	slow := says("slow down", time.Minute, "")
	start := says("slow", time.Minute, "")
	cases := []struct {
		name   string
		steps  []step
		close  time.Duration // when the caller closes; 0 never
		detect Detector
		until  time.Duration
	}{
		{"at once", []step{{0, "slow down", io.EOF}}, 0, slow, time.Minute},
		{"late, not closed", []step{{time.Second, "slow", nil}, {time.Second, " down", io.EOF}}, 0, slow, time.Minute + 2*time.Second},
		{"closed while it comes", []step{{time.Second, "slow", nil}, {time.Hour, " down", io.EOF}}, 5 * time.Second, start, time.Minute + 5*time.Second},
		{"closed before it comes", []step{{time.Second, "slow down", io.EOF}}, 100 * time.Millisecond, slow, 0},
		{"broken", []step{{time.Second, "slow down", io.ErrUnexpectedEOF}}, 0, slow, time.Minute + time.Second},
	}
	for _, c := range cases {
		inWorldOf(t, c.name, func(t *testing.T, w *world) {
			body, closed := trickle(c.steps...)
			tr := w.transport(base(func(*http.Request) (*http.Response, error) { return stream("text/plain", body), nil }),
				rules(w.limit("a", 9, time.Hour)), WithDetectors(c.detect))
			resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
			if c.close > 0 {
				time.Sleep(c.close - w.elapsed())
				require.NoError(t, resp.Body.Close())
				require.True(t, *closed)
				require.NoError(t, resp.Body.Close(), "a second time is harmless")
				_, err := resp.Body.Read(make([]byte, 1))
				require.Error(t, err)
			}
			time.Sleep(10*time.Second - w.elapsed())
			require.Equal(t, c.until, w.until("a").Round(time.Millisecond))
			require.NoError(t, resp.Body.Close())
			time.Sleep(2 * time.Hour)
		})
	}
}

// A caller that has read the end of an answer finds the cool-down in place, however long it takes to begin.
func TestCoolDownIsThereAtTheEndOfTheBody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		body, _ := trickle(step{time.Second, "slow down", io.EOF})
		slow := DetectorFunc(func(r *Response) Verdict {
			time.Sleep(time.Second)
			return Verdict{Throttled: true, Until: r.Now.Add(time.Minute)}
		})
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { return stream("text/plain", body), nil }),
			rules(w.limit("a", 9, time.Hour)), WithDetectors(slow))
		get(t, tr, "http://x/")
		require.Equal(t, 2*time.Second, w.elapsed())
		require.Equal(t, time.Minute+time.Second, w.until("a"))
	})
}

// Close lets a Read that waits end.
func TestCloseWhileReading(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		body, _ := trickle(step{time.Hour, "late", io.EOF})
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { return stream("text/plain", body), nil }),
			WithDetectors(says("x", 0, "")))
		resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
		ended := make(chan error)
		go func() {
			_, err := resp.Body.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, resp.Body.Close())
		require.Error(t, <-ended)
		require.Equal(t, 50*time.Millisecond, w.elapsed())
		time.Sleep(2 * time.Hour)
	})
}

// Every byte and the error at the end come through, whatever the sizes of body, peek and reads.
func TestBodiesComeThroughByteForByte(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 40)
	broken := errors.New("broken")
	for _, size := range []int{0, 1, 15, 16, 17, 31, 32, 33, 64, 500, 640} {
		for _, known := range []bool{true, false} {
			for _, peek := range []int{1, 16, 32, 600, 640, 641, maxPeek} {
				for _, fail := range []error{nil, broken} {
					inWorld(t, func(t *testing.T, w *world) {
						source := &closer{Reader: &jerky{text: text[:size], err: fail}}
						resp := respond(200, "text/plain", text[:size])
						resp.Body = source
						if !known {
							resp.ContentLength = -1
						}
						var body string
						var complete bool
						tr := w.transport(base(func(*http.Request) (*http.Response, error) { return resp, nil }),
							WithPeek(peek, time.Second), WithDetectors(DetectorFunc(func(r *Response) Verdict {
								body, complete = string(r.Body), r.Complete
								return Verdict{}
							})))
						got := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
						require.Equal(t, resp.ContentLength, got.ContentLength)
						require.Equal(t, resp.Header, got.Header)
						all, err := io.ReadAll(&small{got.Body})
						require.Equal(t, fail, err)
						require.Equal(t, text[:size], string(all))
						require.NoError(t, got.Body.Close())
						require.EqualValues(t, 1, source.closed.Load())
						require.Equal(t, text[:min(size, peek)], body)
						whole := fail == nil && (size < peek || size == peek && known)
						whole = whole || fail != nil && known && size <= peek
						require.Equal(t, whole, complete, "size %d peek %d known %v fail %v", size, peek, known, fail)
					})
				}
			}
		}
	}
}

// A jerky reader brings 1, 2, 3, … bytes, and its end apart from the last ones.
type jerky struct {
	text string
	n    int
	err  error
}

func (j *jerky) Read(p []byte) (int, error) {
	if j.text == "" {
		if j.err != nil {
			return 0, j.err
		}
		return 0, io.EOF
	}
	j.n++
	n := copy(p[:min(len(p), j.n)], j.text)
	j.text = j.text[n:]
	return n, nil
}

// A small reader reads seven bytes at a time.
type small struct{ io.Reader }

func (s *small) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), 7)]) }

// Answers that have no body, or whose body is a connection, are not touched.
func TestAnswersWithoutABody(t *testing.T) {
	cases := []struct {
		name   string
		method string
		resp   *http.Response
		seen   int
	}{
		{"HEAD", "HEAD", &http.Response{StatusCode: 200, ContentLength: 500, Body: http.NoBody}, 1},
		{"204", "GET", &http.Response{StatusCode: 204, Body: http.NoBody}, 1},
		{"304", "GET", &http.Response{StatusCode: 304, ContentLength: 500, Body: http.NoBody}, 1},
		{"none", "GET", &http.Response{StatusCode: 429, Body: nil}, 1},
		{"101", "GET", &http.Response{StatusCode: 101, Body: &connection{}}, 0},
		{"CONNECT", "CONNECT", &http.Response{StatusCode: 200, ContentLength: -1, Body: &connection{}}, 0},
	}
	for _, c := range cases {
		inWorldOf(t, c.name, func(t *testing.T, w *world) {
			seen := 0
			tr := w.transport(base(func(*http.Request) (*http.Response, error) { return c.resp, nil }),
				WithDetectors(DetectorFunc(func(r *Response) Verdict {
					seen++
					require.True(t, r.Complete)
					require.Empty(t, r.Body)
					return Verdict{}
				})))
			require.Same(t, c.resp, redistest.Must(tr.RoundTrip(request(t, c.method, "http://x/", nil)))(t))
			require.Equal(t, c.seen, seen)
			require.Zero(t, w.elapsed())
		})
	}
}

type connection struct{ io.ReadWriteCloser }

// Without a detector nothing is looked at.
func TestNoDetectorNoLook(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		resp := respond(200, "application/json", "{}")
		got, err := w.transport(base(func(*http.Request) (*http.Response, error) { return resp, nil }),
			rules(w.limit("a", 9, time.Second))).RoundTrip(request(t, "GET", "http://x/", nil))
		require.NoError(t, err)
		require.Same(t, resp, got)
	})
}

// Codings that the caller asked for are undone for the detectors alone, within their bound.
func TestCodings(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "one goroutine unpacks")
	pack := func(f func(io.Writer) io.WriteCloser, text string) string {
		var b bytes.Buffer
		z := f(&b)
		redistest.Must(io.WriteString(z, text))(t)
		require.NoError(t, z.Close())
		return b.String()
	}
	gz := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	zl := func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
	fl := func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 9); return f }
	bomb := strings.Repeat("0", 64<<20)
	half := pack(gz, strings.Repeat("slow down. ", 100))
	cases := []struct {
		coding, body string
		start        string
		length       int
		complete     bool
		unread       bool // an event tells of it
	}{
		{"gzip", pack(gz, "slow down"), "slow down", 9, true, false},
		{"X-GZIP", pack(gz, "slow down"), "slow down", 9, true, false},
		{"deflate", pack(zl, "slow down"), "slow down", 9, true, false},
		{"deflate", pack(fl, "slow down"), "slow down", 9, true, false},
		{"identity", "slow down", "slow down", 9, true, false},
		{"gzip, identity", pack(gz, "slow down"), "slow down", 9, true, false},
		{"br", "slow down", "", 0, false, true},
		{"gzip, gzip", pack(gz, "slow down"), "", 0, false, true},
		{"gzip", "slow down", "", 0, false, true},
		{"gzip", pack(gz, bomb), "0000", maxPeek, false, false},
		{"gzip", half[:len(half)-8], "slow down. slow", 1100, false, true},
		{"gzip", "", "", 0, false, false},
	}
	for _, c := range cases {
		inWorld(t, func(t *testing.T, w *world) {
			resp := respond(200, "text/plain", c.body)
			resp.Header.Set("Content-Encoding", c.coding)
			seen := Response{}
			tr := w.transport(base(func(*http.Request) (*http.Response, error) { return resp, nil }),
				WithDetectors(DetectorFunc(func(r *Response) Verdict { seen = *r; return Verdict{} })))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, text := get(t, tr, "http://x/")
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "what a bomb can make of it")
			require.Equal(t, c.body, text, "the caller gets what was sent")
			require.True(t, strings.HasPrefix(string(seen.Body), c.start), "%s: %.20q", c.coding, seen.Body)
			require.Len(t, seen.Body, c.length, c.coding)
			require.Equal(t, c.complete, seen.Complete, c.coding)
			require.Equal(t, c.unread, slices.Contains(w.kinds(), EventUnread), c.coding)
		})
	}
}

// TestBodyNotSeen checks that an event tells of a body that a detector needed and did not see to its end, because it was cut or the
// caller closed it before it came; and that none does for a body that came, or that no detector needed.
func TestBodyNotSeen(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   string // the Content-Type
		length int64
		pause  time.Duration // until the body comes
		err    error         // that ends it
		read   bool          // the caller reads it
		reason string        // of the event
	}{
		{"whole", "text/plain", 9, 0, nil, true, ""},
		{"whole, and closed", "text/plain", 9, 0, nil, false, ""},
		{"late", "text/plain", 9, time.Second, nil, true, ""},
		{"late, and closed", "text/plain", 9, time.Second, nil, false, "the caller closed it"},
		{"late without a length, and closed", "text/plain", -1, time.Second, nil, false, "the caller closed it"},
		{"cut", "text/plain", 43, 0, io.ErrUnexpectedEOF, true, io.ErrUnexpectedEOF.Error()},
		{"cut, and closed", "text/plain", 43, 0, io.ErrUnexpectedEOF, false, io.ErrUnexpectedEOF.Error()},
		{"late and cut", "text/plain", -1, time.Second, io.ErrUnexpectedEOF, true, io.ErrUnexpectedEOF.Error()},
		{"cut behind its length", "text/plain", 9, 0, io.ErrUnexpectedEOF, true, ""},
		{"not needed, and closed", "text/event-stream", -1, time.Second, nil, false, ""},
		{"not needed, and cut", "text/event-stream", -1, 0, io.ErrUnexpectedEOF, true, ""},
	} {
		inWorldOf(t, c.name, func(t *testing.T, w *world) {
			tr := w.transport(base(func(*http.Request) (*http.Response, error) {
				resp := respond(200, c.kind, "slow down")
				resp.ContentLength = c.length
				r := io.Reader(strings.NewReader("slow down"))
				if c.err != nil {
					r = io.MultiReader(r, iotest.ErrReader(c.err))
				}
				resp.Body = &slowBody{closer{Reader: r}, c.pause}
				return resp, nil
			}), rules(w.limit("a", 9, time.Second)), WithDetectors(DetectorFunc(func(*Response) Verdict { return Verdict{} })))
			resp := redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t)
			if c.read {
				_, err := io.ReadAll(resp.Body)
				require.ErrorIs(t, err, c.err)
			}
			require.NoError(t, resp.Body.Close())
			time.Sleep(2 * time.Second)
			var reasons []string
			for _, e := range w.taken() {
				if e.Kind == EventUnread {
					require.Equal(t, 200, e.Status)
					require.Equal(t, "x", e.Host)
					reasons = append(reasons, e.Err.Error())
				}
			}
			if c.reason == "" {
				require.Empty(t, reasons)
				return
			}
			require.Len(t, reasons, 1)
			require.Contains(t, reasons[0], c.reason)
		})
	}
}
