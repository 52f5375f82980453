// SPDX-License-Identifier: Apache-2.0

package outage

import "sync"

// A Broadcast tells any number of goroutines that something has happened, such as that Redis is too slow.
type Broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// Next returns a channel that is closed when it happens next.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Happened closes the channel that Next has returned.
func (b *Broadcast) Happened() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
