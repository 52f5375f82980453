// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// profileRejections has the form of each profile's rejections. The other profiles keep the form of
// httplimit.WithRejectionResponse, which has the fields of their errors. The codes of DingTalk and WeCom would say that
// the platform punishes, which it does not: the request was not sent.
var profileRejections = map[string]httplimit.RejectionForm{
	"feishu":    FeishuRejection,
	"github":    GitHubRejection,
	"openai":    OpenAIRejection,
	"anthropic": AnthropicRejection,
}

// DiscordRejection is the [httplimit.RejectionForm] of discord.com: a JSON object with message, retry_after in seconds,
// and global, and the fields X-RateLimit-Remaining, -Reset, -Reset-After and -Scope. Its wait is that of one route, and
// global is false. (https://docs.discord.com/developers/topics/rate-limits)
func DiscordRejection(e *httplimit.Error) (http.Header, []byte) {
	after := strconv.FormatFloat(seconds(e), 'f', -1, 64)
	reset := strconv.FormatFloat(float64(resetAt(e).UnixMilli())/1e3, 'f', -1, 64)
	header := http.Header{}
	header.Set("X-RateLimit-Remaining", "0")
	header.Set("X-RateLimit-Reset", reset)
	header.Set("X-RateLimit-Reset-After", after)
	header.Set("X-RateLimit-Scope", "user")
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat)) // X-RateLimit-Reset is on this clock
	return jsonRejection(header, map[string]any{"message": e.Error(), "retry_after": seconds(e), "global": false})
}

// TelegramRejection is the [httplimit.RejectionForm] of api.telegram.org: a JSON object with ok, error_code, description,
// and parameters.retry_after in whole seconds. (https://core.telegram.org/bots/api#making-requests and
// #responseparameters)
func TelegramRejection(e *httplimit.Error) (http.Header, []byte) {
	after := rates.WholeSeconds(e.Wait)
	return jsonRejection(nil, map[string]any{"ok": false, "error_code": http.StatusTooManyRequests,
		"description": fmt.Sprintf("Too Many Requests: retry after %d: %v", after, e), "parameters": map[string]int64{"retry_after": after}})
}

// GitLabRejection is the [httplimit.RejectionForm] of gitlab.com and of a GitLab of one's own: plain text, by default
// "Retry later", and the fields RateLimit-Remaining, -Reset, which is in seconds since 1970, and -ResetTime. The wait is
// in Retry-After, too. It has no RateLimit-Limit, from which GitLab's SDK would make a limiter of its own.
// (https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/#response-headers)
func GitLabRejection(e *httplimit.Error) (http.Header, []byte) {
	at := resetAt(e).Add(time.Second - 1).Truncate(time.Second)
	header := http.Header{}
	header.Set("RateLimit-Remaining", "0")
	header.Set("RateLimit-Reset", strconv.FormatInt(at.Unix(), 10))
	header.Set("RateLimit-ResetTime", at.UTC().Format(http.TimeFormat))
	header.Set("Content-Type", "text/plain")
	return header, []byte("Retry later: " + e.Error() + "\n")
}

// SlackRejection is the [httplimit.RejectionForm] of slack.com: a JSON object with ok and the error ratelimited. The wait
// is in Retry-After. (https://docs.slack.dev/apis/web-api/rate-limits)
func SlackRejection(e *httplimit.Error) (http.Header, []byte) {
	return jsonRejection(nil, map[string]any{"ok": false, "error": "ratelimited", "detail": e.Error()})
}

// GitHubRejection is the [httplimit.RejectionForm] of api.github.com, that of a secondary rate limit: a JSON object with
// a message that says so, by which Octokit recognizes one, and documentation_url. The wait is in Retry-After.
// (https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api#rate-limit-errors and
// https://github.com/octokit/plugin-throttling.js/blob/main/src/index.ts)
func GitHubRejection(e *httplimit.Error) (http.Header, []byte) {
	return jsonRejection(nil, map[string]any{"message": "You have exceeded a secondary rate limit: " + e.Error(),
		"documentation_url": "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"})
}

// FeishuRejection is the [httplimit.RejectionForm] of open.feishu.cn and open.larksuite.com: a JSON object with the code
// 99991400 and msg, and the field x-ogw-ratelimit-reset, the wait in whole seconds.
// (https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control)
func FeishuRejection(e *httplimit.Error) (http.Header, []byte) {
	header := http.Header{}
	header.Set("X-Ogw-Ratelimit-Reset", strconv.FormatInt(rates.WholeSeconds(e.Wait), 10))
	return jsonRejection(header, map[string]any{"code": 99991400, "msg": e.Error()})
}

// OpenAIRejection is the [httplimit.RejectionForm] of api.openai.com: a JSON object with an error of the type requests
// and the code rate_limit_exceeded. The wait is in Retry-After. (https://platform.openai.com/docs/guides/error-codes; the
// fields of the body are as in https://github.com/Huanshere/VideoLingo/issues/34)
func OpenAIRejection(e *httplimit.Error) (http.Header, []byte) {
	return jsonRejection(nil, map[string]any{"error": map[string]any{
		"message": e.Error(), "type": "requests", "param": nil, "code": "rate_limit_exceeded"}})
}

// AnthropicRejection is the [httplimit.RejectionForm] of api.anthropic.com: a JSON object with an error of the type
// rate_limit_error. The wait is in Retry-After. It has no request_id, since Anthropic has had no request.
// (https://platform.claude.com/docs/en/api/errors)
func AnthropicRejection(e *httplimit.Error) (http.Header, []byte) {
	return jsonRejection(nil, map[string]any{"type": "error", "error": map[string]string{"type": "rate_limit_error", "message": e.Error()}})
}

// jsonRejection returns header, and body as JSON.
func jsonRejection(header http.Header, body map[string]any) (http.Header, []byte) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // texts, numbers and booleans have a JSON
	}
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	return header, text
}

// seconds returns the wait in seconds, rounded up to a millisecond.
func seconds(e *httplimit.Error) float64 {
	return float64((e.Wait + time.Millisecond - 1).Milliseconds()) / 1e3
}

// resetAt returns when the wait ends, on this process's clock.
func resetAt(e *httplimit.Error) time.Time { return time.Now().Add(e.Wait) }
