// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A settledBody passes a body on as the caller reads it to the Settle functions of its limits, and settles the
// permits at the end.
type settledBody struct {
	source    io.ReadCloser
	trip      *roundTrip
	resp      *http.Response // the caller's
	seen      http.Response  // as it was before the caller had it, for the functions
	coding    string
	throttled bool  // the platform did not execute the request
	left      int64 // of the body, negative when not known

	mu     sync.Mutex
	meters [][]*meter // of each settlement of each demand; nil before there is something to show
	ended  bool
}

func (c *roundTrip) settledBody(a *answer) *settledBody {
	b := &settledBody{trip: c, resp: a.response, seen: *a.response, coding: contentCoding(a.response.Header),
		throttled: a.verdict.Throttled, left: a.response.ContentLength}
	b.seen.Header, b.seen.Trailer = a.response.Header.Clone(), nil
	return b
}

// Read is that of io.Reader.
func (b *settledBody) Read(p []byte) (int, error) {
	n, err := b.source.Read(p)
	b.feed(p[:n])
	if err != nil {
		b.end(err)
	}
	return n, err
}

// Close closes the body.
func (b *settledBody) Close() error {
	defer b.end(errNotRead)
	return b.source.Close()
}

// feed passes a part of the body on, and returns when the functions have read it.
func (b *settledBody) feed(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || len(p) == 0 {
		return
	}
	b.begin()
	b.left -= int64(len(p))
	for _, list := range b.meters {
		for _, m := range list {
			_, _ = m.feed.Write(p) // fails when the function has returned
		}
	}
}

// begin begins to meter.
func (b *settledBody) begin() {
	if b.meters != nil {
		return
	}
	b.meters = make([][]*meter, len(b.trip.plan.demands))
	for k, d := range b.trip.plan.demands {
		for _, s := range d.settlements {
			b.meters[k] = append(b.meters[k], b.meter(s))
		}
	}
}

// end settles the permits. Its error is the one that ended the body.
func (b *settledBody) end(err error) {
	b.mu.Lock()
	over := b.ended
	b.ended = true
	b.mu.Unlock()
	if over {
		return
	}
	b.begin()
	if b.left == 0 {
		err = io.EOF // it was closed after its last byte
	}
	for _, list := range b.meters {
		for _, m := range list {
			if errors.Is(err, io.EOF) {
				m.seen.Trailer = b.resp.Trailer.Clone() // it came with the end
			}
			_ = m.feed.CloseWithError(err) // is always nil
			<-m.ended
		}
	}
	b.trip.settle(func(k, i int) (int64, error) {
		n, err := b.meters[k][i].result()
		if err != nil && b.throttled {
			return 0, nil
		}
		return n, err
	})
}

// A meter calls a limit's Settle, in a goroutine of its own, with what the caller reads of a body.
type meter struct {
	seen     http.Response // what the function gets
	body     *plainReader  // its Body
	feed     *io.PipeWriter
	ended    chan struct{} // closed when the function has returned
	actual   int64         // what it returned
	most     int64         // that it can have meant
	panicked error
}

func (b *settledBody) meter(s settlement) *meter {
	source, feed := io.Pipe()
	m := &meter{seen: b.seen, body: &plainReader{source: source, coding: b.coding}, feed: feed, ended: make(chan struct{}), actual: -1, most: s.most}
	m.seen.Header, m.seen.Body = b.seen.Header.Clone(), m.body
	go func() {
		defer close(m.ended) // whatever the function does, runtime.Goexit included
		defer source.Close()
		if p := b.trip.t.contain(&b.trip.event, "Limit.Settle", func() { m.actual = s.settle(&m.seen) }); p != nil {
			m.panicked = p
		}
	}()
	return m
}

// result returns the number that the function returned, or an error if it does not count.
func (m *meter) result() (int64, error) {
	switch err := m.body.err; {
	case m.panicked != nil:
		return 0, m.panicked
	case m.actual > m.most:
		return 0, fmt.Errorf("Limit.Settle returned %d permits, which is more than the %d that can be meant", m.actual, m.most)
	case m.actual >= 0:
		return m.actual, nil
	case err != nil && !errors.Is(err, io.EOF):
		return 0, err
	}
	return 0, errNoNumber
}
