// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestClusterThatDoesNotNameItsNodes checks that a caller is told what to do about a cluster from which go-redis does not learn
// where the nodes are.
func TestClusterThatDoesNotNameItsNodes(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 7, 0, "cluster-preferred-endpoint-type")
	cluster := redistest.StartCluster(t)
	for _, node := range cluster.Nodes() {
		require.NoError(t, node.Client(t).ConfigSet(t.Context(), "cluster-preferred-endpoint-type", "unknown-endpoint").Err())
	}
	rdb := cluster.Client(t)
	client := redistest.Must(ratelimiter.New(rdb))(t)
	defer client.Close()
	_, err := client.RateLimiter("x").TrySetRate(t.Context(), ratelimiter.Rate{Permits: 1, Interval: time.Second})
	require.ErrorContains(t, err, "cluster-preferred-endpoint-type")
}
