// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestSecretsStayOutOfNames: however a robot's URL is written, its token is not in a limiter's name, and the
// robot's own limiter is spent where a slash is all that differs.
func TestSecretsStayOutOfNames(t *testing.T) {
	const token = "T0kenT0ken"
	feishu, wecom, ding, robot := Feishu("app"), WeCom("corp"), DingTalk("ding"), DingTalkRobot()
	for _, c := range []struct {
		profile httplimit.Profile
		url     string
		robot   bool
	}{
		{feishu, "https://open.feishu.cn/open-apis/bot/hook/" + token, true},
		{feishu, "https://open.feishu.cn/open-apis/bot/hook/" + token + "/", true},
		{feishu, "https://open.feishu.cn/open-apis/bot/hook/" + token + "/more", true},
		{feishu, "https://open.feishu.cn//open-apis/./bot/hook/" + token + "//", true},
		{feishu, "https://open.feishu.cn/open-apis/bot/v2/hook/" + token, true},
		{feishu, "https://open.feishu.cn/open-apis/bot/v2/hook/" + token + "/", true},
		{feishu, "https://open.larksuite.com/open-apis/bot/v2/hook/" + token + "/x/y", true},
		{feishu, "https://open.feishu.cn/open-apis/bot/Hook/" + token, false},
		{feishu, "https://open.feishu.cn/open-apis/bot/hook%2F" + token, true},
		{feishu, "https://open.feishu.cn/open-apis/bot/v2/HOOK/" + token + "/", false},
		{feishu, "https://open.feishu.cn/hook/" + token, false},
		{wecom, "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=" + token, true},
		{wecom, "https://qyapi.weixin.qq.com/cgi-bin/webhook/send/?key=" + token, true},
		{ding, "https://oapi.dingtalk.com/robot/send?access_token=" + token, true},
		{ding, "https://oapi.dingtalk.com/robot/send/?access_token=" + token, true},
		{robot, "https://oapi.dingtalk.com/robot/send/?access_token=" + token, true},
	} {
		list := names(t, profiled(t, c.profile.Rules), "POST", c.url)
		require.NotEmpty(t, list)
		spent := false
		for name := range list {
			require.NotContains(t, name, token, c.url)
			spent = spent || strings.Contains(name, ":robot:"+httplimit.Hash(token))
		}
		require.Equal(t, c.robot, spent, "%s: %v", c.url, list)
	}
}

// TestGitHubTokens: a token that is given for the account is not in a limiter's name; a login is.
func TestGitHubTokens(t *testing.T) {
	const random = "0123456789abcdef0123456789abcdef0123"
	for _, token := range []string{"ghp_" + random, "gho_x", "ghu_x", "ghs_x", "ghr_x", "GHP_x", "github_pat_11AAAAAAA0" + random,
		random + "4567", "Bearer x", "token x", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2ln"} {
		for name := range names(t, profiled(t, GitHub(token).Rules), "POST", "https://api.github.com/repos/a/b/issues") {
			require.NotContains(t, name, token)
			require.Contains(t, name, httplimit.Hash(token))
		}
	}
	for name := range names(t, profiled(t, GitHub("octo-cat_acme").Rules), "POST", "https://api.github.com/repos/a/b/issues") {
		require.Contains(t, name, ":octo-cat_acme:")
	}
}

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
