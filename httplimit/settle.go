// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// settleDelay is how long settling may hold up the caller at the end of a body.
const settleDelay = time.Second

// A settlement is what a limit with Settle has of a demand.
type settlement struct {
	permits int64
	settle  func(*http.Response) int64
}

// settles reports whether a limit of the plan is settled.
func (p *plan) settles() bool {
	return slices.ContainsFunc(p.demands, func(d demand) bool { return len(d.settlements) > 0 })
}

// settleAtEnd has the permits settled when the caller has read the body, or closes it.
func (c *call) settleAtEnd(resp *http.Response) {
	if len(c.grants) == 0 {
		return
	}
	b := &settledBody{source: resp.Body}
	b.settle = func(tail []byte) { c.settle(resp, tail) }
	if resp.Body == nil || resp.Body == http.NoBody {
		b.end()
		return
	}
	if _, ok := resp.Body.(io.Writer); !ok { // a connection that was handed over, as with 101, has no end
		resp.Body = b
	}
}

// settle settles each grant by what the functions of its limits say.
func (c *call) settle(resp *http.Response, tail []byte) {
	ctx, cancel := c.context(settleDelay)
	defer cancel()
	for _, g := range c.grants {
		d := c.plan.find(g.Limiter().Name())
		if d == nil {
			continue
		}
		sum := d.permits
		for _, s := range d.settlements {
			sum += c.actual(s, resp, tail) - s.permits
		}
		if err := g.Settle(ctx, sum); err != nil {
			e := c.event
			e.Kind, e.Limiter, e.Err = EventUnsettled, d.name, err
			c.t.emit(e)
		}
	}
}

// actual returns what a limit's part of the permits was, by its function.
func (c *call) actual(s settlement, resp *http.Response, tail []byte) int64 {
	seen, actual := *resp, int64(-1)
	seen.Body = io.NopCloser(bytes.NewReader(tail))
	if p := c.t.contain(&c.event, "Limit.Settle", func() { actual = s.settle(&seen) }); p != nil || actual < 0 {
		return s.permits
	}
	return actual
}

// A settledBody keeps the end of what is read of a body, and tells when there is no more.
type settledBody struct {
	source io.ReadCloser
	settle func(tail []byte)
	once   sync.Once

	mu   sync.Mutex
	tail []byte
}

// Read is that of io.Reader.
func (b *settledBody) Read(p []byte) (int, error) {
	n, err := b.source.Read(p)
	b.mu.Lock()
	if b.tail = append(b.tail, p[:n]...); len(b.tail) > 2*MaxPeek {
		b.tail = append(b.tail[:0], b.tail[len(b.tail)-MaxPeek:]...)
	}
	b.mu.Unlock()
	if err != nil {
		b.end()
	}
	return n, err
}

// Close closes the body.
func (b *settledBody) Close() error {
	defer b.end()
	return b.source.Close()
}

func (b *settledBody) end() {
	b.once.Do(func() {
		b.mu.Lock()
		tail := b.tail
		b.mu.Unlock()
		b.settle(tail[max(0, len(tail)-MaxPeek):])
	})
}
