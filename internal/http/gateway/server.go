// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
)

// The bounds of a Server. None of them bounds a whole request: a stream of events may be silent for hours while the client
// listens, and an upload may take as long as its bytes keep coming.
const (
	headerTimeout = 10 * time.Second // for the handshake, and for the header of a request
	unreadTimeout = 10 * time.Second // for the body of a request that is rejected without reading it
	stallTimeout  = time.Minute      // without a byte of a request's body, or for one write to a client that does not read
	idleTimeout   = 2 * time.Minute  // between two requests; longer than the 90 s of Go's clients, so that these close first
)

// MaxStreams is how many requests a client may have in flight on one HTTP/2 connection. Most of them wait.
const MaxStreams = 1000

// Bounds of what a client of HTTP/2 may send before it is read. The bodies of requests that wait leave room for others: those longer than
// aheadMost are not read.
const (
	streamBuffer     = 256 << 10
	connectionBuffer = 16 << 20
)

// NewServer returns a server for h that clients cannot hold on to: it bounds how long it waits for a handshake, a header, and the
// next request, and for a body that h does not read. The listener is a [Listener], which bounds the rest.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if hasBody(r) {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTimeout)) // of net/http's, which can
			}
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: MaxStreams, MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connectionBuffer},
		ErrorLog:          log.New(io.Discard, "", 0), // it would log the clients' handshakes that fail
	}
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

var (
	// errStalled is the error of a body of which no byte came for stallTimeout.
	errStalled = errors.New("gateway: the body of the request stopped coming")
	// errClientBody is the error of a body that could not be read for another reason.
	errClientBody = errors.New("gateway: the body of the request")
)

// A clientBody is the body of a request that is forwarded. Each Read waits no longer than stallTimeout. Between two, however long the
// platform takes, nothing is bounded. There is one Read at a time.
type clientBody struct {
	io.ReadCloser
	control *http.ResponseController // not to be used when it is over
	http1   bool

	mu      sync.Mutex
	pause   sync.Cond // of Reads
	reading bool
	until   time.Time // when the Read fails that is under way, or failed the last one
	ended   bool
	failed  bool // it ended before its end
	over    bool // no Read begins any more, and what ends has no consequences
}

func newClientBody(w http.ResponseWriter, r *http.Request) *clientBody {
	b := &clientBody{ReadCloser: r.Body, control: http.NewResponseController(w), http1: r.ProtoMajor == 1}
	b.pause.L = &b.mu
	b.deadline(time.Time{}) // the body may wait for permits
	return b
}

// deadline sets when a Read fails. A ResponseWriter that is not net/http's may have none.
func (b *clientBody) deadline(t time.Time) { _ = b.control.SetReadDeadline(t) }

// stalled reports whether no byte came for stallTimeout. It does so as soon as the deadline is over, whether or not the Read has
// returned: with HTTP/1 the server cancels the request's context before that, as it does when the client leaves.
func (b *clientBody) stalled() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.overdue()
}

func (b *clientBody) overdue() bool { return !b.until.IsZero() && !time.Now().Before(b.until) }

// Read is that of io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return 0, errBodyClosed
	case b.overdue():
		return 0, errStalled
	}
	b.until, b.reading = time.Now().Add(stallTimeout), true
	b.deadline(b.until)
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	b.reading, b.ended, b.failed = false, err != nil, err != nil && err != io.EOF
	b.pause.Broadcast()
	switch {
	case b.over: // which has a deadline of its own
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errStalled // the deadline stays
	case err == nil && b.http1:
		b.until = time.Time{} // that of the connection stays
	default:
		b.until = time.Time{}
		b.deadline(b.until) // with HTTP/1 the server reads on, to see whether the client leaves
	}
	if b.failed {
		err = fmt.Errorf("%w: %w", errClientBody, err)
	}
	return n, err
}

// answered is told the header of the platform's response. Over HTTP/1, net/http throws away the rest of a short body before it writes a
// header, as if nobody else read it, unless the connection is to be closed.
func (b *clientBody) answered(h http.Header) {
	if b == nil || !b.http1 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		h.Set("Connection", "close")
	}
}

// rejected is told the header of a response that is not the platform's. For that of HTTP/1 net/http would wait for a Read that is under way.
func (b *clientBody) rejected(h http.Header) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.over = true; {
	case !b.http1: // where that would end the connection for other requests
	case b.reading || b.failed:
		h.Set("Connection", "close")
	case b.ended:
	default:
		b.deadline(time.Now().Add(unreadTimeout)) // as net/http reads the rest of a short body first
	}
}

// leave is called when the handler returns, or panics.
func (b *clientBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

// unreadBytes is how much of a body is read that nobody needs, as net/http does. Some clients read no response before they have sent it.
const unreadBytes = 256 << 10

// end is called after leave if the response was not cut. The server may read what is left of the body. Over HTTP/1 it would end a Read that is under
// way, and with it what can be read of a body in chunks, and read on without a deadline. So the response is sent, and then the rest is read
// here.
func (b *clientBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended && !b.overdue() {
		b.deadline(time.Now().Add(unreadTimeout))
	}
	if !b.reading || !b.http1 {
		return
	}
	b.mu.Unlock()
	_ = b.control.Flush()
	b.mu.Lock()
	for b.reading {
		b.pause.Wait()
	}
	if !b.ended {
		_, _ = io.CopyN(io.Discard, b.ReadCloser, unreadBytes) // the connection is closed whatever this returns
	}
}

// A Listener bounds what one source can take of a server: its connections, and the time of a write.
type Listener struct {
	net.Listener
	most   int
	report func(source string, rejected int)

	mu       sync.Mutex
	conns    map[netip.Prefix]int
	rejected int       // since the last report
	next     time.Time // when there may be another
}

// reportEvery is how far apart the reports of rejected connections are, however many there are.
const reportEvery = time.Minute

// NewListener returns a Listener that closes at once what a source connects beyond most connections; 0 is no bound. A source is an
// IPv4 address, or a /64 of IPv6. The function report is told at most once a minute of the last source and of how many connections were closed.
func NewListener(ln net.Listener, most int, report func(source string, rejected int)) *Listener {
	return &Listener{Listener: ln, most: most, report: report, conns: map[netip.Prefix]int{}}
}

// Accept is that of net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source, known := sourceOf(c.RemoteAddr())
		if !known || l.enter(source) {
			return &boundConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(source) })}, nil
		}
		_ = c.Close()
	}
}

func (l *Listener) enter(source netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most == 0 || l.conns[source] < l.most {
		l.conns[source]++
		return true
	}
	l.rejected++
	if now := time.Now(); !now.Before(l.next) {
		l.report(source.String(), l.rejected)
		l.rejected, l.next = 0, now.Add(reportEvery)
	}
	return false
}

func (l *Listener) leave(source netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[source]--; l.conns[source] <= 0 {
		delete(l.conns, source)
	}
}

// sourceOf returns what counts as one source. A subscriber usually has a whole /64.
func sourceOf(a net.Addr) (netip.Prefix, bool) {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}, false
	}
	addr, bits := ap.Addr().WithZone("").Unmap(), 64
	if addr.Is4() {
		bits = 32
	}
	p, err := addr.Prefix(bits)
	return p, err == nil
}

// A boundConn is a connection of a Listener.
type boundConn struct {
	net.Conn
	leave func()
}

// Write is that of io.Writer. It fails if the client does not take it within stallTimeout.
func (c *boundConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close is that of io.Closer.
func (c *boundConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
