// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"fmt"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestRejectionOfARule checks that each platform that a rule names for its rejections gives its own form to them.
func TestRejectionOfARule(t *testing.T) {
	redistest.NoServer(t)
	for name, part := range map[string]string{
		"anthropic": `"rate_limit_error"`, "discord": `"retry_after":1.5`, "feishu": "99991400", "github": "secondary rate limit", "gitlab": "Retry later",
		"openai": `"rate_limit_exceeded"`, "slack": `"ratelimited"`, "telegram": `"retry_after":2`,
	} {
		rules, err := Parse(fmt.Appendf(nil, "rules: [{name: a, detectors: [http], rejection: %s}]", name))
		require.NoError(t, err)
		_, body := rules[0].Rejection(&httplimit.Error{Wait: 1500 * time.Millisecond})
		require.Contains(t, string(body), part, name)
	}
	require.Len(t, rejections, 8)
	rules, err := Parse([]byte("rules: [{name: a, detectors: [http]}]"))
	require.NoError(t, err)
	require.Nil(t, rules[0].Rejection)
}
