package httplimit

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/guard"
)

// errClosedBody is what a read of a closed body answers, as net/http's does.
var errClosedBody = errors.New("httplimit: read on closed response body")

// errNoRead is what a body ends with whose Read ended the goroutine.
var errNoRead = errors.New("httplimit: the response body ended the goroutine that read it")

// An ahead is a response's body whose start is read ahead by a goroutine. The caller gets each byte as
// soon as it has come. When the start, or the body, has ended, the caller reads on from the body itself.
//
// Not a buffered look before the caller gets the response: it would hold up a stream whose first bytes
// trickle. Nor a copy taken as the caller reads: then a caller that never reads would leave the fleet
// without a cool-down.
type ahead struct {
	source io.ReadCloser
	in     *http.Response // as the base made it: the body's end fills its Trailer
	out    *http.Response // the caller's copy
	length int64          // of the body, -1 when not known
	limit  int

	mu     sync.Mutex
	more   sync.Cond
	buf    []byte // what was read ahead
	off    int    // how much of it the caller has had
	err    error  // that ended the reading; nil when the limit did
	ended  bool   // the reading has ended
	open   bool   // and the detectors have seen what it brought: the caller may see the end
	closed bool
	late   func(body []byte, complete bool) // tells the detectors, when RoundTrip does not

	panicked func(*PanicError) // is told when the body panics

	stopped chan struct{} // closed when the reading has ended
}

// readAhead begins to read the body of resp.
func readAhead(resp *http.Response, limit int, panicked func(*PanicError)) *ahead {
	a := &ahead{source: resp.Body, in: resp, length: resp.ContentLength, limit: limit, panicked: panicked, stopped: make(chan struct{})}
	a.more.L = &a.mu
	// A copy, because the reading goroutine comes to the end of the body and fills in.Trailer at a time
	// when the caller may look at it.
	out := *resp
	out.Trailer = maps.Clone(resp.Trailer)
	out.Body = a
	a.out = &out
	size := 4 << 10
	if a.length >= 0 && a.length < int64(limit) {
		size = int(a.length) + 1 // one for the end of file
	}
	a.buf = make([]byte, 0, min(size, limit))
	go a.fill()
	return a
}

// fill reads until the limit or the end of the body. What it defers runs whatever the body and the detectors do,
// runtime.Goexit included: somebody may wait for it.
func (a *ahead) fill() {
	err := errNoRead
	defer func() {
		if v := recover(); v != nil {
			p := guard.New("Response.Body.Read", v)
			a.panicked(p)
			err = p
		}
		a.end(err)
	}()
	err = a.read()
}

// read reads until the limit, and returns the error that ended it before.
func (a *ahead) read() error {
	for {
		a.mu.Lock()
		if len(a.buf) == cap(a.buf) {
			grown := make([]byte, len(a.buf), min(4*cap(a.buf), a.limit))
			copy(grown, a.buf)
			a.buf = grown
		}
		space := a.buf[len(a.buf):cap(a.buf)]
		a.mu.Unlock()
		n, err := a.source.Read(space) // where nobody else looks: the others see buf[:len]
		a.mu.Lock()
		a.buf = a.buf[:len(a.buf)+n]
		if err != nil || len(a.buf) >= a.limit || a.closed {
			a.mu.Unlock()
			return err
		}
		a.more.Broadcast()
		a.mu.Unlock()
	}
}

// end notes that the reading has ended with err, and has the detectors look when RoundTrip does not wait for that
// any more.
func (a *ahead) end(err error) {
	a.mu.Lock()
	a.err, a.ended = err, true
	late := a.late
	a.late = nil
	a.open = late == nil
	a.more.Broadcast()
	a.mu.Unlock()
	close(a.stopped)
	if late == nil {
		return
	}
	defer func() {
		a.mu.Lock()
		a.open = true
		a.more.Broadcast()
		a.mu.Unlock()
	}()
	late(a.buf, a.complete())
}

// complete says that buf is the whole body. The reading must have ended.
func (a *ahead) complete() bool {
	return a.err == io.EOF || a.length >= 0 && int64(len(a.buf)) == a.length
}

// wait waits for the reading to end, for hold at most. When it has not, it answers false, and late is
// called when it has, or when the caller closes the body.
func (a *ahead) wait(ctx context.Context, hold time.Duration, late func([]byte, bool)) bool {
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-a.stopped:
	case <-timer.C:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.late = late
		return false
	}
	a.trailer()
	return true
}

// trailer hands on the trailer that the end of the body has brought.
func (a *ahead) trailer() {
	if a.err == io.EOF {
		a.out.Trailer = a.in.Trailer
	}
}

// settle closes the body of a response that was read to its end, and keeps what it said.
func (a *ahead) settle() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.source.Close() // at its end: nothing is lost
	a.source = http.NoBody
}

// Read is that of io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	a.mu.Lock()
	for !a.closed && a.off == len(a.buf) && !a.open {
		a.more.Wait()
	}
	if a.closed {
		a.mu.Unlock()
		return 0, errClosedBody
	}
	if a.off < len(a.buf) {
		n := copy(p, a.buf[a.off:])
		a.off += n
		a.mu.Unlock()
		return n, nil
	}
	a.buf, a.off = nil, 0
	if a.err != nil {
		defer a.mu.Unlock()
		a.trailer()
		return 0, a.err
	}
	a.mu.Unlock()
	n, err := a.source.Read(p)
	if err != nil {
		a.mu.Lock()
		a.err = err
		a.trailer()
		a.mu.Unlock()
	}
	return n, err
}

// Close closes the body. It lets a read that is on its way end, as net/http's does; what has come by
// then is what the detectors see.
func (a *ahead) Close() (err error) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	late, body := a.late, a.buf
	a.late = nil
	a.more.Broadcast()
	a.mu.Unlock()
	if late == nil {
		return a.source.Close()
	}
	defer func() { err = a.source.Close() }() // also when the detectors end the goroutine
	late(body, a.length >= 0 && int64(len(body)) == a.length)
	return nil
}
