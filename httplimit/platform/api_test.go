// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

var wildcard = regexp.MustCompile(`\{\w+\}`)

// TestOneAPIOneLimiter: whatever the ids in its path are, an API of the documentation has one limiter.
func TestOneAPIOneLimiter(t *testing.T) {
	for _, c := range []struct {
		file    string
		host    string
		profile httplimit.Profile
	}{
		{"testdata/dingtalk_apis.txt", "https://api.dingtalk.com", DingTalk("a")},
		{"testdata/feishu_apis.txt", "https://open.feishu.cn", Feishu("a")},
	} {
		text := redistest.Must(os.ReadFile(c.file))(t)
		tr, apis := profiled(t, c.profile.Rules), 0
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			apis++
			method, path, _ := strings.Cut(strings.TrimSpace(line), " ")
			require.Regexp(t, wildcard, path)
			var seen map[string]int64
			for _, id := range []string{"zhangsan", "users", "0123", "%E5%BC%A0", "v1.0"} {
				got := names(t, tr, method, c.host+wildcard.ReplaceAllString(path, id))
				require.Len(t, got, 2)
				if seen != nil {
					require.Equal(t, seen, got, "%s", line)
				}
				seen = got
			}
		}
		require.Greater(t, apis, 50)
	}
}
