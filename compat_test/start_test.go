// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryVersionStarts checks that each version of the matrix runs, and which release added which operation.
func TestEveryVersionStarts(t *testing.T) {
	require.GreaterOrEqual(t, len(allVersions), 8)
	brought := []struct{ since, operations string }{
		{"3.13.4", "acquire acquireAsync availablePermits clearExpire delete expire expireAt getConfig getName isExists " +
			"remainTimeToLive setRate tryAcquire tryAcquireAsync trySetRate"},
		{"3.20.1", "expireAtIfGreater expireAtIfLess expireAtIfNotSet expireAtIfSet expireIfGreater expireIfLess " +
			"expireIfNotSet expireIfSet getExpireTime"},
		{"3.52.0", "keepAliveTime release tryAcquireDuration"},
		{"4.7.0", "setRateArgs updateRate"},
	}
	eachVersion(t, func(t testing.TB, v version) {
		p := fleet.peer(t, v)
		require.Len(t, p.id, 36)
		require.Equal(t, p.id, p.must(t, "id"))
		var want []string
		for _, b := range brought {
			if v.since(b.since) {
				want = append(want, strings.Fields(b.operations)...)
			}
		}
		require.ElementsMatch(t, want, strings.Fields(p.must(t, "operations")))
	})
}
