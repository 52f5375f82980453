// SPDX-License-Identifier: Apache-2.0

package embedredis

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDialWhileItCloses checks that a connection may be made at any moment, and none to a server that is closed.
func TestDialWhileItCloses(t *testing.T) {
	for range 300 {
		s := InBubble()
		o := s.Options()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					if c, err := o.Dialer(t.Context(), "", ""); err == nil {
						_ = c.Close()
					}
				}
			})
		}
		s.Close()
		wg.Wait()
		_, err := o.Dialer(t.Context(), "", "")
		require.ErrorIs(t, err, net.ErrClosed)
	}
}
