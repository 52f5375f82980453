// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// An http.Transport sends a request again as long as the platform closes idle connections on which it is sent, which may be all that there
// are. For the permits of one it is sent twice at most.
type sendings struct {
	written atomic.Int32
	ended   atomic.Bool // there was to be one more
}

const mostSendings = 2

// of returns the request whose sendings are counted. From the third one on, the connection is closed before anything is written to it. One of
// HTTP/2, which other requests may use, is left: there only what the platform has not looked at is sent again.
func (s *sendings) of(req *http.Request) *http.Request {
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { s.written.Add(1) },
		GotConn: func(info httptrace.GotConnInfo) {
			if s.written.Load() < mostSendings || info.Reused && !info.WasIdle {
				return
			}
			if c, ok := info.Conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
				return
			}
			s.ended.Store(true)
			_ = info.Conn.Close() // then nothing is written
		},
	}))
}

// explain returns the error of the sendings.
func (s *sendings) explain(err error) error {
	if err == nil || !s.ended.Load() {
		return err
	}
	return fmt.Errorf("httplimit: sent %d times, on connections that were closed: %w", mostSendings, err)
}
