// SPDX-License-Identifier: Apache-2.0

package dinggate

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// A Server is a [Gate] that listens on loopback.
type Server struct {
	*Gate
	// URL is where it listens: http://127.0.0.1 and a port.
	URL string

	srv    *http.Server
	served chan error
}

// Start starts a Server with those limits on a free port of 127.0.0.1. Who starts it closes it.
func Start(limits Limits) (*Server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("dinggate: %w", err)
	}
	g := New(limits)
	s := &Server{
		Gate: g, URL: "http://" + ln.Addr().String(),
		srv:    &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second},
		served: make(chan error, 1),
	}
	go func() { s.served <- s.srv.Serve(ln) }()
	return s, nil
}

// Close ends it and every connection, also those of calls in flight, and returns the error that ended
// it before, if any. It may be called once.
func (s *Server) Close() error {
	err := s.srv.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	return err
}
