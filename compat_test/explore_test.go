// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/explore"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// TestEveryOrderBesideRedisson makes every order of a few steps of two processes of this package and of the script that
// Redisson sends, which package explore otherwise has a model of. Members are those of 3.17 and later.
func TestEveryOrderBesideRedisson(t *testing.T) {
	t.Parallel()
	redistest.NoRace(t, "each world belongs to one goroutine")
	eachVersion(t, func(t testing.TB, v version) {
		acquire := captureScripts(t, v)["tryAcquire"]
		for _, typ := range []permit.Type{permit.Overall, permit.PerClient} {
			r, err := explore.Explore(explore.Config{Type: typ, Rate: 2, Limiters: 1, Depth: redistest.Cases(5, 6),
				Steps: []string{"ask", "java", "refund", "evict", "time"}, Redisson: acquire.explored})
			require.NoError(t, err)
			require.NoError(t, r.Broken, "%v", r)
			t.Logf("%v", r)
		}
	}, from("3.17.0"), func(v version) bool { return v.name == allVersions[len(allVersions)-1].name || redistest.Long() })
}

// explored runs the script as another client, for another limiter.
func (c scriptCall) explored(eval func(text string, keys, args []string) (any, error), limiter, client string, permits, now int64, random string) (bool, error) {
	keys, args := slices.Clone(c.keys), slices.Clone(c.args)
	for i, key := range keys {
		keys[i] = rename(key, limiter, strings.TrimPrefix(c.keys[2], "{"+captureName+"}:value:"), client)
	}
	args[0], args[1], args[2] = strconv.FormatInt(permits, 10), strconv.FormatInt(now, 10), random
	v, err := eval(c.text, keys, args)
	return err == nil && v == nil, err
}
