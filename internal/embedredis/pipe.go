// SPDX-License-Identifier: Apache-2.0

package embedredis

import (
	"net"
	"sync"
)

// A buffered is one end of a [net.Pipe] that a write does not wait for, as with a socket. Without it two ends that
// both write, as when Redis replies to the first commands of a pipeline, wait for each other.
type buffered struct {
	net.Conn
	mu      sync.Mutex
	pending []byte
	writing bool
	err     error
}

func (b *buffered) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	b.pending = append(b.pending, p...)
	if !b.writing {
		b.writing = true
		go b.drain()
	}
	return len(p), nil
}

// drain writes what is pending. It ends when nothing is, or when the connection is closed.
func (b *buffered) drain() {
	for {
		b.mu.Lock()
		p := b.pending
		b.pending = nil
		if b.writing = len(p) > 0 && b.err == nil; !b.writing {
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		if _, err := b.Conn.Write(p); err != nil {
			b.mu.Lock()
			b.err = err
			b.mu.Unlock()
		}
	}
}
