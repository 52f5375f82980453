// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// tunnels serves what comes through CONNECT. It is a server of its own, on connections hijacked from the other
// server.
type tunnels struct {
	server *http.Server
	ca     *CA
	conns  chan net.Conn
	closed chan struct{}
}

// A tunnelConn is the connection beneath the TLS of a tunnel.
type tunnelConn struct {
	net.Conn
	start  io.Reader // what the client sent before it had a response
	origin origin
}

// Read first returns what the client sent early.
func (c *tunnelConn) Read(p []byte) (int, error) {
	if n, err := c.start.Read(p); err == nil {
		return n, nil
	}
	return c.Conn.Read(p)
}

type tunnelKey struct{}

// tunnelOf returns the tunnel of a request, or nil.
func tunnelOf(ctx context.Context) *tunnelConn {
	t, _ := ctx.Value(tunnelKey{}).(*tunnelConn)
	return t
}

func newTunnels(g *Gateway) *tunnels {
	t := &tunnels{ca: g.cfg.ca, conns: make(chan net.Conn), closed: make(chan struct{})}
	t.server = NewServer(g)
	t.server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, tunnelKey{}, c.(*tls.Conn).NetConn())
	}
	go func() { _ = t.server.Serve(t) }() // it returns when shutdown closes t
	return t
}

// connect turns a CONNECT request into a tunnel.
func (g *Gateway) connect(w *recorder, r *http.Request, to *route) {
	switch {
	case tunnelOf(r.Context()) != nil:
		noTunnel("There is no tunnel within a tunnel").write(w)
		return
	case g.tunnels == nil:
		noTunnel("The gateway has no CA").write(w)
		return
	case r.ProtoMajor != 1:
		noTunnel("There is no tunnel over HTTP/2").write(w)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		noTunnel("The connection cannot become a tunnel").write(w)
		return
	}
	_ = conn.SetDeadline(time.Time{}) // an error shows with the next write
	early := make([]byte, buf.Reader.Buffered())
	_, _ = io.ReadFull(buf, early) // it is buffered
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	w.status = http.StatusOK
	g.tunnels.serve(&tunnelConn{conn, bytes.NewReader(early), to.origin})
}

// serve hands a connection to the server, which does the handshake.
func (t *tunnels) serve(c *tunnelConn) {
	conn := tls.Server(c, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return t.ca.leaf(c.origin.host)
		},
	})
	select {
	case t.conns <- conn:
	case <-t.closed:
		_ = conn.Close()
	}
}

// Accept, Close and Addr implement net.Listener.
func (t *tunnels) Accept() (net.Conn, error) {
	select {
	case c := <-t.conns:
		return c, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. The server calls it once.
func (t *tunnels) Close() error {
	close(t.closed)
	return nil
}

// Addr is for net.Listener.
func (t *tunnels) Addr() net.Addr { return &net.TCPAddr{} }

func (t *tunnels) shutdown(ctx context.Context) error {
	err := t.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, t.server.Close())
	}
	return err
}
