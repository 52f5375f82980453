// SPDX-License-Identifier: Apache-2.0

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

// errClosedBody is the error of a read of a closed body, as it is in net/http.
var errClosedBody = errors.New("httplimit: read on closed response body")

// errNoRead is the error of a body whose Read ended the goroutine that called it.
var errNoRead = errors.New("httplimit: the response body ended the goroutine that read it")

// errClosedEarly is why the detectors did not see all of a body that the caller closed.
var errClosedEarly = errors.New("the caller closed it before it had arrived")

// A peekedBody is a response's body whose start a goroutine reads ahead of the caller, for the detectors. The caller
// gets each byte as soon as it has arrived. Behind the start the caller reads from the body itself.
//
// Reading the start before the caller gets the response would hold up a stream whose first bytes trickle. Copying what
// the caller reads would leave the fleet without a cool-down when the caller never reads.
type peekedBody struct {
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
	late   func(body []byte, complete bool, cut error) // tells the detectors, when RoundTrip does not

	panicked func(*PanicError) // is told when the body panics

	stopped chan struct{} // closed when the reading has ended
}

// readAhead begins to read the body of resp ahead of the caller.
func readAhead(resp *http.Response, limit int, panicked func(*PanicError)) *peekedBody {
	b := &peekedBody{source: resp.Body, in: resp, length: resp.ContentLength, limit: limit, panicked: panicked, stopped: make(chan struct{})}
	b.more.L = &b.mu
	// A copy, because the reading goroutine comes to the end of the body and fills in.Trailer at a time
	// when the caller may look at it.
	out := *resp
	out.Trailer = maps.Clone(resp.Trailer)
	out.Body = b
	b.out = &out
	size := 4 << 10
	if b.length >= 0 && b.length < int64(limit) {
		size = int(b.length) + 1 // one for the end of file
	}
	b.buf = make([]byte, 0, min(size, limit))
	go b.fill()
	return b
}

// fill reads until the limit or the end of the body. What it defers runs whatever the body and the detectors do,
// runtime.Goexit included: somebody may wait for it.
func (b *peekedBody) fill() {
	err := errNoRead
	defer func() {
		if v := recover(); v != nil {
			p := guard.New("Response.Body.Read", v)
			b.panicked(p)
			err = p
		}
		b.end(err)
	}()
	err = b.read()
}

// read reads until the limit, and returns the error that ended it before.
func (b *peekedBody) read() error {
	for {
		b.mu.Lock()
		if len(b.buf) == cap(b.buf) {
			grown := make([]byte, len(b.buf), min(4*cap(b.buf), b.limit))
			copy(grown, b.buf)
			b.buf = grown
		}
		space := b.buf[len(b.buf):cap(b.buf)]
		b.mu.Unlock()
		n, err := b.source.Read(space) // where nobody else looks: the others see buf[:len]
		b.mu.Lock()
		b.buf = b.buf[:len(b.buf)+n]
		if err != nil || len(b.buf) >= b.limit || b.closed {
			b.mu.Unlock()
			return err
		}
		b.more.Broadcast()
		b.mu.Unlock()
	}
}

// end notes that the reading has ended with err, and calls the detectors if RoundTrip has stopped waiting for that.
func (b *peekedBody) end(err error) {
	b.mu.Lock()
	b.err, b.ended = err, true
	late := b.late
	b.late = nil
	b.open = late == nil
	b.more.Broadcast()
	b.mu.Unlock()
	close(b.stopped)
	if late == nil {
		return
	}
	defer func() {
		b.mu.Lock()
		b.open = true
		b.more.Broadcast()
		b.mu.Unlock()
	}()
	late(b.buf, b.complete(), b.cut())
}

// complete reports whether buf is the whole body. The reading must have ended.
func (b *peekedBody) complete() bool {
	return b.err == io.EOF || b.length >= 0 && int64(len(b.buf)) == b.length
}

// cut returns why buf is all that there is of the body, though it is neither whole nor as long as the limit. The reading
// must have ended.
func (b *peekedBody) cut() error {
	if b.complete() {
		return nil
	}
	return b.err
}

// wait waits for the reading to end, for hold at most, and reports whether it has. Otherwise late is called when it has
// ended, or when the caller closes the body.
func (b *peekedBody) wait(ctx context.Context, hold time.Duration, late func([]byte, bool, error)) bool {
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-b.stopped:
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.late = late
		return false
	}
	b.trailer()
	return true
}

// trailer gives the caller the trailer, which arrives with the end of the body.
func (b *peekedBody) trailer() {
	if b.err == io.EOF {
		b.out.Trailer = b.in.Trailer
	}
}

// closeBody closes the body of a response that was read to its end. The caller can still read what was read ahead.
func (b *peekedBody) closeBody() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.source.Close() // at its end: nothing is lost
	b.source = http.NoBody
}

// Read is that of io.Reader.
func (b *peekedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	for !b.closed && b.off == len(b.buf) && !b.open {
		b.more.Wait()
	}
	if b.closed {
		b.mu.Unlock()
		return 0, errClosedBody
	}
	if b.off < len(b.buf) {
		n := copy(p, b.buf[b.off:])
		b.off += n
		b.mu.Unlock()
		return n, nil
	}
	b.buf, b.off = nil, 0
	if b.err != nil {
		defer b.mu.Unlock()
		b.trailer()
		return 0, b.err
	}
	b.mu.Unlock()
	n, err := b.source.Read(p)
	if err != nil {
		b.mu.Lock()
		b.err = err
		b.trailer()
		b.mu.Unlock()
	}
	return n, err
}

// Close closes the body. A Read that is blocked returns, as in net/http; the detectors see what has arrived by then.
func (b *peekedBody) Close() (err error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	late, body := b.late, b.buf
	b.late = nil
	b.more.Broadcast()
	b.mu.Unlock()
	if late == nil {
		return b.source.Close()
	}
	defer func() { err = b.source.Close() }() // also when the detectors end the goroutine
	complete, cut := b.length >= 0 && int64(len(body)) == b.length, errClosedEarly
	if complete {
		cut = nil
	}
	late(body, complete, cut)
	return nil
}
