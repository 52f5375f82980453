// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"slices"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestImportersGetLittle: who imports one of the packages gets no more of this module than it is made of. The
// transport knows neither platforms nor the middleware, the middleware neither the transport nor platforms,
// and the YAML parser comes with package rulefile alone.
func TestImportersGetLittle(t *testing.T) {
	within := func(list ...string) (paths []string) {
		for _, p := range list {
			paths = append(paths, "httplimit/"+p)
		}
		return paths
	}
	root := redistest.Core
	inbound := slices.Concat(root, []string{"limit"}, within("inbound", "internal/guard", "internal/keyname", "internal/rates"))
	transport := slices.Concat(root, []string{"httplimit", "limit"},
		within("internal/authority", "internal/envelope", "internal/guard", "internal/keyname", "internal/muxpattern", "internal/rates"))
	platform := slices.Concat(transport, within("platform", "internal/stream"))
	gateway := slices.Concat(transport, within("gateway"))
	rulefile := slices.Concat(platform, within("rulefile"))
	require.Empty(t, redistest.Strangers(t, ".", transport...))
	require.Empty(t, redistest.Strangers(t, "./platform", platform...))
	require.Empty(t, redistest.Strangers(t, "./inbound", inbound...))
	require.Empty(t, redistest.Strangers(t, "./gateway", gateway...))
	for _, p := range redistest.Strangers(t, "./rulefile", rulefile...) {
		require.Contains(t, p, " of go.yaml.in/yaml/v3")
	}

	// The look finds what is there.
	require.NotEmpty(t, redistest.Strangers(t, "./rulefile", rulefile...))
	require.NotEmpty(t, redistest.Strangers(t, "./platform", transport...))
	require.NotEmpty(t, redistest.Strangers(t, "./inbound", transport...))
}
