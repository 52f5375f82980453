// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"testing"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/detecttest"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/stretchr/testify/require"
)

// The tables of detectors.
type detection = detecttest.Row

var (
	arrival   = detecttest.Arrival
	check     = detecttest.Check
	throttled = detecttest.Throttled
	banned    = detecttest.Banned
)

// TestNeedsBody: an answer is not read ahead for detectors that can tell without its body.
func TestNeedsBody(t *testing.T) {
	text, image := http.Header{"Content-Type": {"application/json"}}, http.Header{"Content-Type": {"image/png"}}
	for _, c := range []struct {
		name            string
		d               httplimit.Detector
		ok, no, picture bool // a text with 200, one with 403, a picture with 403
	}{
		{"old", DingTalkOldDetector(), true, true, false},
		{"new", DingTalkNewDetector(), false, true, true},
		{"GitHub", GitHubDetector(), false, true, true},
		{"HTTP", httplimit.HTTPDetector(), false, false, false},
		{"none", httplimit.First(), false, false, false},
		{"first of those without", httplimit.First(httplimit.HTTPDetector(), GitHubDetector()), false, true, true},
		{"first of all", httplimit.First(httplimit.HTTPDetector(), WeComDetector()), true, true, false},
		{"adjusted", adjusted{Detector: GitHubDetector()}, false, true, true},
	} {
		require.Equal(t, c.ok, envelope.NeedsBody(c.d, 200, text), c.name)
		require.Equal(t, c.no, envelope.NeedsBody(c.d, 403, text), c.name)
		require.Equal(t, c.picture, envelope.NeedsBody(c.d, 403, image), c.name)
	}
}
