// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestWhichRedissonIsDecidedFirst checks that the migration begins with the version of Redisson and names the option of the one
// layout that Go does not write by itself, and that no page promises a range of versions without saying so.
func TestWhichRedissonIsDecidedFirst(t *testing.T) {
	redistest.NoServer(t)
	all := pages(t)
	for page, back := range map[string]string{"docs/from-java.md": "## The way back", "docs/zh/from-java.md": "## 回退"} {
		zero, one := strings.Index(all[page], "**0. "), strings.Index(all[page], "**1. ")
		require.Positive(t, zero, page)
		require.Less(t, zero, one, page)
		require.Contains(t, all[page][zero:one], "`ratelimiter.WithRedisson316()`", page)
		require.Contains(t, all[page][zero:one], "`data string too short`", page)
		_, section, ok := strings.Cut(all[page], back)
		require.True(t, ok, page)
		require.Contains(t, section, "`WithRedisson316()`", page)
	}
	for _, page := range []string{"README.md", "docs/http-outbound.md", "docs/production.md", "docs/quickstart.md", "docs/gateway.md", "docs/troubleshooting.md", "docs/faq.md", "VERSIONING.md",
		"README.zh-CN.md", "docs/zh/http-outbound.md", "docs/zh/production.md", "docs/zh/quickstart.md", "docs/zh/gateway.md", "docs/zh/troubleshooting.md"} {
		require.Regexp(t, `3\.16\.4[^.]*3\.16\.8[\s\S]{0,200}from-java\.md#which-redisson|from-java\.md#which-redisson[\s\S]{0,200}3\.16\.8`, all[page], page)
	}
	ranges, n := regexp.MustCompile(`3\.(13\.3|15\.5) (to 4|on|到 4|以上)|from 3\.1[35]\.\d on`), 0
	for page, text := range all {
		if page == "CHANGELOG.md" || page == "CONTRIBUTING.md" || strings.HasPrefix(page, "docs/design/") {
			continue
		}
		for block := range strings.SplitSeq(text, "\n\n") {
			if ranges.MatchString(block) {
				n++
				require.Contains(t, block, "3.16.4", "%s promises more than is so:\n%s", page, block)
			}
		}
	}
	require.GreaterOrEqual(t, n, 5)
}

// TestCoolDownOf3134IsTold checks that each page that says what a cool-down is to Java says what it is to 3.13.4, as
// TestCoolDownAndTheOldest and the matrix in compat_test have it.
func TestCoolDownOf3134IsTold(t *testing.T) {
	redistest.NoServer(t)
	all := pages(t)
	for _, page := range []string{"README.md", "README.zh-CN.md", "docs/faq.md", "docs/from-java.md", "docs/zh/from-java.md", "docs/compatibility.md", "docs/http-outbound.md",
		"docs/zh/http-outbound.md", "docs/troubleshooting.md", "docs/zh/troubleshooting.md"} {
		found := false
		for block := range strings.SplitSeq(all[page], "\n\n") {
			found = found || strings.Contains(block, "3.13.4") && regexp.MustCompile(`throw|exception|抛异常`).MatchString(block) &&
				(regexp.MustCompile(`cool.down|CoolDown|冷却`).MatchString(block) || strings.HasSuffix(page, "troubleshooting.md"))
		}
		require.True(t, found, page)
	}
	require.Contains(t, all["docs/compatibility-matrix.md"], "- **v-cool-down** 3.13.4 ")
}
