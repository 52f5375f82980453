// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestApartLeavesNothing checks that nothing of an Apart that could not connect goes on after Close, which a bubble would not end
// with.
func TestApartLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, errors.New("rejected")
		}})
		a := OpenApart(t.Context(), rdb, "key", Wire{Sent: func() bool { t.Error("nothing is sent"); return false }, Heard: func() { t.Error("nothing comes") }})
		require.ErrorContains(t, a.Process(t.Context(), redis.NewCmd(t.Context(), "ping")), "rejected")
		synctest.Wait()
		require.Equal(t, 1, dials)
		a.Close()
		require.NoError(t, rdb.Close())
	})
}
