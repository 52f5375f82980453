// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Cutter breaks connections of its clients within a reply. [Cutter.Option] makes a client one of them. A Cutter is safe for
// concurrent use.
type Cutter struct {
	Delay time.Duration // how long a request takes to the server
	Push  bool          // the server sends a push message before each reply to what is cut; for RESP3

	mu    sync.Mutex
	match func(requests [][]string) bool // nil unless the next match is to be cut
	at    int
	cut   bool
}

// Option makes a client one of c.
func (c *Cutter) Option(o *redis.Options) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: conn, by: c, protocol: "2", in: bufio.NewReader(conn), left: -1}, nil
	}
}

// CutAt breaks the connection on which requests are sent next for which match is true, in one piece, once it has passed that many
// bytes of the replies. If the replies have no more, all of them pass.
func (c *Cutter) CutAt(bytes int, match func(requests [][]string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.match, c.cut = bytes, match, false
}

// Cut reports whether the connection was broken for which [Cutter.CutAt] was called last, and whether there were such requests.
func (c *Cutter) Cut() (cut, matched bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut, c.match == nil
}

// A cutConn is the connection of a client of a Cutter.
type cutConn struct {
	net.Conn
	by       *Cutter
	protocol string        // of RESP
	begun    []byte        // a request that the client has written in part: one of 32 KB or more
	in       *bufio.Reader // what the server sends
	out      []byte        // what is to be passed on

	mu   sync.Mutex
	left int // how many bytes may be passed on; -1 for any number
}

// Write implements net.Conn.
func (c *cutConn) Write(p []byte) (int, error) {
	time.Sleep(c.by.Delay)
	var requests [][]string
	var out []byte
	c.begun = append(c.begun, p...)
	for in := bufio.NewReader(bytes.NewReader(c.begun)); ; {
		raw, words, err := Frame(in, nil, nil)
		if err != nil {
			break
		}
		requests, c.begun = append(requests, words), c.begun[len(raw):]
		if words[0] == "hello" && len(words) == 1 { // miniredis knows HELLO only with a protocol
			raw = fmt.Appendf(nil, "*2\r\n$5\r\nhello\r\n$1\r\n%s\r\n", c.protocol)
		} else if words[0] == "hello" {
			c.protocol = words[1]
		}
		out = append(out, raw...)
	}
	if len(requests) == 0 {
		return len(p), nil
	}
	left := c.by.takes(requests)
	c.mu.Lock()
	c.left = left
	c.mu.Unlock()
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// takes returns how many bytes of the replies to requests may pass, or -1.
func (c *Cutter) takes(requests [][]string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.match == nil || !c.match(requests) {
		return -1
	}
	c.match = nil
	return c.at
}

// Read implements net.Conn.
func (c *cutConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) == 0 {
		c.mu.Unlock()
		raw, _, err := Frame(c.in, nil, nil)
		c.mu.Lock()
		if err != nil {
			return 0, err
		}
		if c.left >= 0 && c.by.Push {
			raw = append([]byte(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"), raw...)
		}
		c.out = raw
	}
	if c.left == 0 {
		_ = c.Close()
		c.by.mu.Lock()
		c.by.cut = true
		c.by.mu.Unlock()
		return 0, io.EOF
	}
	n := len(c.out)
	if c.left > 0 {
		n = min(n, c.left)
	}
	n = copy(p, c.out[:n])
	c.out = c.out[n:]
	if c.left > 0 {
		c.left -= n
	}
	return n, nil
}
