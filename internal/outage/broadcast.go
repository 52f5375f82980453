// SPDX-License-Identifier: Apache-2.0

package outage

import "sync/atomic"

// A Broadcast tells any number of goroutines that something has happened, such as that Redis is too slow.
type Broadcast struct {
	ch atomic.Pointer[chan struct{}]
}

// Next returns a channel that is closed when it happens next.
func (b *Broadcast) Next() <-chan struct{} {
	for {
		if ch := b.ch.Load(); ch != nil {
			return *ch
		}
		ch := make(chan struct{})
		b.ch.CompareAndSwap(nil, &ch)
	}
}

// Happened closes the channel that Next has returned.
func (b *Broadcast) Happened() {
	if ch := b.ch.Swap(nil); ch != nil {
		close(*ch)
	}
}
