// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		require.NoError(t, Sleep(ctx, 2*time.Second))
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.ErrorIs(t, Sleep(ctx, 2*time.Second), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(begin), "it ends with the context")
	})
}
