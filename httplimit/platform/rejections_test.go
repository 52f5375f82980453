// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/stretchr/testify/require"
)

// TestRejectionForms checks the body and the fields in which each platform says how long to wait: here 1.5 s, from
// 2000-01-01 00:00:00 on.
func TestRejectionForms(t *testing.T) {
	e := &httplimit.Error{Limiter: "robot", Wait: 1500 * time.Millisecond, Reason: httplimit.ReasonWait}
	const message = `httplimit: rejected before it was sent: no permit in time (limiter \"robot\", 1.5s to wait)`
	isJSON := map[string]string{"Content-Type": "application/json"}
	for name, c := range map[string]struct {
		form   httplimit.RejectionForm
		body   string
		header map[string]string
	}{
		"discord": {DiscordRejection, `{"message":"` + message + `","retry_after":1.5,"global":false}`, map[string]string{
			"Content-Type": "application/json", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "946684801.5", "X-RateLimit-Reset-After": "1.5",
			"X-RateLimit-Scope": "user", "Date": "Sat, 01 Jan 2000 00:00:00 GMT"}},
		"telegram": {TelegramRejection, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 2: ` + message +
			`","parameters":{"retry_after":2}}`, isJSON},
		"gitlab": {GitLabRejection, "Retry later: httplimit: rejected before it was sent: no permit in time (limiter \"robot\", 1.5s to wait)\n",
			map[string]string{"Content-Type": "text/plain", "RateLimit-Remaining": "0", "RateLimit-Reset": "946684802",
				"RateLimit-ResetTime": "Sat, 01 Jan 2000 00:00:02 GMT"}},
		"slack": {SlackRejection, `{"ok":false,"error":"ratelimited","detail":"` + message + `"}`, isJSON},
		"github": {GitHubRejection, `{"message":"You have exceeded a secondary rate limit: ` + message +
			`","documentation_url":"https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`, isJSON},
		"feishu":    {FeishuRejection, `{"code":99991400,"msg":"` + message + `"}`, map[string]string{"Content-Type": "application/json", "X-Ogw-Ratelimit-Reset": "2"}},
		"openai":    {OpenAIRejection, `{"error":{"message":"` + message + `","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, isJSON},
		"anthropic": {AnthropicRejection, `{"type":"error","error":{"type":"rate_limit_error","message":"` + message + `"}}`, isJSON},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				header, body := c.form(e)
				if c.header["Content-Type"] == "application/json" {
					require.JSONEq(t, c.body, string(body))
				} else {
					require.Equal(t, c.body, string(body))
				}
				require.Len(t, header, len(c.header))
				for field, want := range c.header {
					require.Equal(t, want, header.Get(field), field)
				}
			})
		})
	}
}

// TestRejectionOfProfiles checks which form the profiles' rejections have: the platform's own, or the default where its
// codes would say that it punishes.
func TestRejectionOfProfiles(t *testing.T) {
	for name, p := range map[string]struct {
		httplimit.Profile
		contentType, body string
	}{
		"feishu":    {Feishu("a"), "application/json", `"code":99991400`},
		"github":    {GitHub("a"), "application/json", `#about-secondary-rate-limits`},
		"openai":    {OpenAI("a"), "application/json", `"code":"rate_limit_exceeded"`},
		"anthropic": {Anthropic("a"), "application/json", `"type":"rate_limit_error"`},
		"dashscope": {DashScope("a"), "", ""},
		"dingtalk":  {DingTalk("a"), "", ""},
		"robot":     {DingTalkRobot(), "", ""},
		"wecom":     {WeCom("a"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEmpty(t, p.Rules)
			for _, r := range p.Rules {
				if p.body == "" {
					require.Nil(t, r.Rejection, r.Name)
					continue
				}
				header, body := r.Rejection(&httplimit.Error{Wait: time.Second})
				require.Equal(t, p.contentType, header.Get("Content-Type"))
				require.Contains(t, string(body), p.body)
			}
		})
	}
}
