// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// A Fault is what a [Proxy] does to one request. The zero Fault passes the request and its reply on.
type Fault struct {
	Lose  Loss
	Reset bool          // the client sees a reset, not an end of file
	Hold  time.Duration // how long after the request the reply is passed on at the earliest, as on a long line
	Twice bool          // Redis gets it twice, and the client the first reply

	mute  bool      // the second reply is not passed on
	asked time.Time // when the request came
}

// A Loss tells what a [Proxy] withholds.
type Loss int

const (
	LoseNothing Loss = iota
	LoseRequest      // Redis does not get the request
	LoseReply        // Redis has executed the request
)

// A Spoil is what a [Proxy] does to the connections that are open when it is told to: at their next request.
type Spoil int

const (
	SpoilReset   Spoil = iota + 1 // the client sees a reset, and Redis gets nothing, as behind a load balancer that has forgotten the connection
	SpoilSilent                   // nothing arrives, and nobody says so, as after a power failure at the other end
	SpoilReplies                  // Redis executes the request, and the connection ends before the reply
)

// ProxyCounts counts what a [Proxy] has done. A lost reply counts once Redis has sent it, so that the request was
// executed.
type ProxyCounts struct {
	Connections, Requests, Replies, LostRequests, LostReplies, Held, Doubled int
}

// A Proxy stands between clients and a Redis, and breaks what it is told to break. It knows RESP2 and RESP3 well
// enough to tell one reply from the next. What it loses is always a whole request or a whole reply, together with its
// connection. A Proxy is safe for concurrent use.
type Proxy struct {
	addr, target string
	running      sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	listener net.Listener // nil while connections are rejected
	links    map[*link]bool
	judge    func(words []string) Fault
	held     chan struct{} // nil unless all replies are held
	counts   ProxyCounts
}

// StartProxy starts a proxy in front of target, host:port, which is closed when t ends. It must be called outside of
// bubbles.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// NewProxy is [StartProxy] for a program that is not a test: the caller closes the proxy.
func NewProxy(target string) (*Proxy, error) {
	p := &Proxy{target: target, links: map[*link]bool{}}
	var err error
	for range 5 { // another process may take the port first
		p.addr = fmt.Sprintf("127.0.0.1:%d", FreePort())
		if err = p.listen(); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("proxy: %w", err)
}

// Addr returns the address for clients. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Judge sets the function that decides on each request from now on. The function gets the words of the request: the
// command's name and its arguments. Calls of it never overlap. With nil all requests pass.
func (p *Proxy) Judge(f func(words []string) Fault) { p.locked(func() { p.judge = f }) }

// Counts returns what the proxy has done until now.
func (p *Proxy) Counts() (c ProxyCounts) { p.locked(func() { c = p.counts }); return c }

// Cut breaks every connection, with a reset if reset is true.
func (p *Proxy) Cut(reset bool) {
	p.locked(func() {
		for l := range p.links {
			l.cut(reset)
		}
	})
}

// Spoil breaks every connection that is open now, at its next request. Those that are opened later work.
func (p *Proxy) Spoil(how Spoil) {
	p.locked(func() {
		for l := range p.links {
			l.spoilt = how
		}
	})
}

// Redirect has the connections that are opened from now on lead to another server, as when a name is pointed elsewhere.
func (p *Proxy) Redirect(target string) { p.locked(func() { p.target = target }) }

// Hold holds back all replies, as a network does that is down for a while, until Unhold lets them pass.
func (p *Proxy) Hold() {
	p.locked(func() {
		if p.held == nil {
			p.held = make(chan struct{})
		}
	})
}

// Unhold ends Hold.
func (p *Proxy) Unhold() {
	p.locked(func() {
		if p.held != nil {
			close(p.held)
			p.held = nil
		}
	})
}

// Reject makes the system reject new connections until Admit. Existing ones
// stay open.
func (p *Proxy) Reject() {
	p.locked(func() {
		if p.listener != nil {
			_ = p.listener.Close()
			p.listener = nil
		}
	})
}

// Admit ends Reject.
func (p *Proxy) Admit() {
	if err := p.listen(); err != nil {
		panic(fmt.Sprintf("redistest: proxy: %v", err)) // without the listener the test makes no sense
	}
}

// Close closes the proxy. It returns when none of its goroutines is left.
func (p *Proxy) Close() {
	p.locked(func() { p.closed = true })
	p.Reject()
	p.Cut(false)
	p.running.Wait()
}

func (p *Proxy) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *Proxy) listen() (err error) {
	p.locked(func() {
		if p.listener != nil || p.closed {
			return
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", p.addr); err != nil {
			return
		}
		p.listener = listener
		p.running.Go(func() {
			for {
				client, err := listener.Accept()
				if err != nil {
					return
				}
				p.running.Go(func() { p.serve(client) })
			}
		})
	})
	return err
}

// A link is one client's connection, with its own connection to Redis.
type link struct {
	client, server net.Conn
	asked          chan Fault // the faults of the requests that Redis has and has not replied to
	gone           chan struct{}
	once           sync.Once
	spoilt         Spoil // protected by the proxy's mu
}

func (l *link) cut(reset bool) {
	l.once.Do(func() {
		if tcp, ok := l.client.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_ = l.client.Close()
		_ = l.server.Close()
		close(l.gone)
	})
}

func (p *Proxy) serve(client net.Conn) {
	var target string
	p.locked(func() { target = p.target })
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server, asked: make(chan Fault, 1024), gone: make(chan struct{})}
	p.locked(func() {
		p.counts.Connections++
		p.links[l] = true
		if p.closed {
			l.cut(false)
		}
	})
	p.running.Go(func() { l.cut(p.answer(l)) })
	l.cut(p.ask(l))
	p.locked(func() { delete(p.links, l) })
}

// ask passes requests on until one is to be lost or one side closes its connection.
func (p *Proxy) ask(l *link) (reset bool) {
	in := bufio.NewReader(l.client)
	for {
		raw, words, err := Frame(in, nil, nil)
		if err != nil || raw[0] != '*' {
			return false
		}
		var f Fault
		var spoilt Spoil
		p.locked(func() {
			p.counts.Requests++
			if p.judge != nil {
				f = p.judge(words)
			}
			switch spoilt = l.spoilt; spoilt {
			case SpoilReset:
				f = Fault{Lose: LoseRequest, Reset: true}
			case SpoilReplies:
				f = Fault{Lose: LoseReply}
			}
			if f.Lose == LoseRequest {
				p.counts.LostRequests++
			} else if f.Twice {
				p.counts.Doubled++
			}
		})
		if f.Lose == LoseRequest {
			return f.Reset
		}
		if spoilt == SpoilSilent {
			continue
		}
		f.asked = time.Now()
		fates := []Fault{f}
		if f.Twice {
			raw = bytes.Repeat(raw, 2)
			if fates = append(fates, Fault{mute: true}); f.Lose == LoseReply {
				slices.Reverse(fates) // both are executed before the connection is closed
			}
		}
		for _, f := range fates {
			select {
			case l.asked <- f: // before Redis can reply
			case <-l.gone:
				return false
			}
		}
		if _, err := l.server.Write(raw); err != nil {
			return false
		}
	}
}

// answer passes replies on until one is to be lost or one side closes its connection.
func (p *Proxy) answer(l *link) (reset bool) {
	in := bufio.NewReader(l.server)
	for {
		raw, _, err := Frame(in, nil, nil)
		if err != nil {
			return false
		}
		var f Fault
		if raw[0] != '>' { // a push is no reply to a request
			select {
			case f = <-l.asked:
			default: // nor is what Redis sends to a client that it does not want
			}
		}
		if f.mute {
			continue
		}
		if f.Hold > 0 {
			f.Hold = max(1, time.Until(f.asked.Add(f.Hold)))
		}
		if !p.hold(l, f.Hold) {
			return false
		}
		if f.Lose == LoseReply {
			p.locked(func() { p.counts.LostReplies++ })
			return f.Reset
		}
		p.locked(func() { p.counts.Replies++ })
		if _, err := l.client.Write(raw); err != nil {
			return false
		}
	}
}

// hold waits while a reply is held back, and reports whether the link is still open.
func (p *Proxy) hold(l *link, d time.Duration) bool {
	var held chan struct{}
	p.locked(func() {
		if held = p.held; held != nil || d > 0 {
			p.counts.Held++
		}
	})
	if held != nil {
		select {
		case <-held:
		case <-l.gone:
			return false
		}
	}
	if d > 0 {
		select {
		case <-time.After(d):
		case <-l.gone:
			return false
		}
	}
	return true
}
