// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Door stands between a client and its server, in a bubble or outside: [Door.Option] makes it part of the client's dialer, and so
// of the connections that are opened beside the client's pool. The zero value is open. A Door is safe for concurrent use.
type Door struct {
	mu      sync.Mutex
	refuses bool
	thawed  chan struct{} // closed when the server goes on; nil while it is not frozen
	conns   []*doorConn
}

// Option puts the Door into the Dialer of o. It also sets a password, which a server that wants none accepts.
func (d *Door) Option(o *redis.Options) {
	o.Password = "some"
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.mu.Lock()
		refuses := d.refuses
		d.mu.Unlock()
		if refuses {
			return refused(), nil
		}
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.refuses { // since then
			_ = c.Close()
			return refused(), nil
		}
		through := &doorConn{Conn: c, door: d, closed: make(chan struct{})}
		d.conns = append(d.conns, through)
		return through, nil
	}
}

// WrongPassword is what a server says while a Door refuses.
const WrongPassword = "WRONGPASS invalid username-password pair"

// refused returns a connection to a server that refuses.
func refused() net.Conn {
	near, far := net.Pipe()
	go refuse(far)
	return near
}

// refuse is a server that does not know the password.
func refuse(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // go-redis 9.19 does not close it
	for in := bufio.NewReader(c); ; {
		if _, _, err := Frame(in, nil, nil); err != nil {
			return
		}
		if _, err := io.WriteString(c, "-"+WrongPassword+"\r\n"); err != nil {
			return
		}
	}
}

// Refuse breaks the connections that are open, and has the server accept the password of no new one.
func (d *Door) Refuse() {
	d.mu.Lock()
	d.refuses = true
	conns := d.conns
	d.conns = nil
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// Freeze has the server stand still, as SIGSTOP does: connections are accepted, and what is sent is read when it goes on.
func (d *Door) Freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.thawed = make(chan struct{})
}

// Open ends what Refuse and Freeze began.
func (d *Door) Open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuses = false
	if d.thawed == nil {
		return
	}
	close(d.thawed)
	d.thawed = nil
	for _, c := range d.conns {
		_, _ = c.Conn.Write(c.unread)
		c.unread = nil
	}
}

// A doorConn is a connection through a Door.
type doorConn struct {
	net.Conn
	door   *Door
	unread []byte // by the frozen server; the lock of the door guards it
	once   sync.Once
	closed chan struct{}

	mu       sync.Mutex
	deadline time.Time
}

// Write implements net.Conn.
func (c *doorConn) Write(p []byte) (int, error) {
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	if c.door.thawed != nil {
		c.unread = append(c.unread, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Read implements net.Conn. What has arrived when the server freezes is held back, too.
func (c *doorConn) Read(p []byte) (int, error) {
	if err := c.hold(); err != nil { // a read of a real socket would hold up virtual time
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if held := c.hold(); held != nil {
		return 0, held
	}
	return n, err
}

// hold returns when the server is not frozen, or with the error of a read that ends before.
func (c *doorConn) hold() error {
	c.door.mu.Lock()
	thawed := c.door.thawed
	c.door.mu.Unlock()
	if thawed == nil {
		return nil
	}
	var late <-chan time.Time
	c.mu.Lock()
	if !c.deadline.IsZero() {
		late = time.After(time.Until(c.deadline))
	}
	c.mu.Unlock()
	select {
	case <-thawed:
		return nil
	case <-c.closed:
		return net.ErrClosed
	case <-late:
		return os.ErrDeadlineExceeded
	}
}

// SetDeadline implements net.Conn.
func (c *doorConn) SetDeadline(t time.Time) error {
	c.setDeadline(t)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *doorConn) SetReadDeadline(t time.Time) error {
	c.setDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *doorConn) setDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
}

// Close implements net.Conn.
func (c *doorConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
