// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"net"
	"testing"
)

// Listen has serve speak for a server of any protocol, in a goroutine for each connection, which is closed when serve returns. It
// returns the server's address, host and port. No connection is accepted after the test.
func Listen(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	ln := Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return ln.Addr().String()
}
