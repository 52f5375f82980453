// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/stretchr/testify/require"
)

// openAIRows: the errors of https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors, as
// seen at https://github.com/NVIDIA-NeMo/Guardrails/issues/371.
var openAIRows = []detection{
	{Name: "requests", Status: 429, Until: 8640 * time.Millisecond, Want: throttled(ScopeAccount, "rate_limit_exceeded"),
		Header: "x-ratelimit-limit-requests: 10000\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 8.64s\nx-ratelimit-remaining-tokens: 149984\nx-ratelimit-reset-tokens: 6m0s\n",
		Body:   `{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
	{Name: "tokens", Status: 429, Until: 250 * time.Millisecond, Want: throttled(ScopeAccount, "rate_limit_exceeded"),
		Header: "x-ratelimit-remaining-requests: 59\nx-ratelimit-reset-requests: 1s\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 250ms\n",
		Body:   `{"error":{"message":"Rate limit reached","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`},
	{Name: "Retry-After first", Status: 429, Until: 7 * time.Second, Want: throttled(ScopeAccount, "rate_limit_exceeded"),
		Header: "retry-after: 7\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 1s\n", Body: `{"error":{"code":"rate_limit_exceeded"}}`},
	{Name: "a day's limit", Status: 429, Until: llmMax, Asked: 5 * time.Hour, Want: throttled(ScopeAccount, "rate_limit_exceeded"),
		Header: "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 5h0m0s\n", Body: `{"error":{"code":"rate_limit_exceeded"}}`},
	{Name: "no header", Status: 429, Until: -1, Want: throttled(ScopeAccount, "slow_down"), Body: `{"error":{"type":"rate_limit_error","code":"slow_down"}}`},
	{Name: "overloaded", Status: 503, Until: -1, Want: throttled(ScopeAccount, "server_is_overloaded"), Body: `{"error":{"type":"service_unavailable_error","code":"server_is_overloaded"}}`},
	{Name: "no body", Status: 429, Until: -1, Want: throttled(ScopeAccount, "status 429")},
	{Name: "nothing left to spend", Status: 429, Ignored: spentReason,
		Body: `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`},
	{Name: "a project's spending", Status: 429, Ignored: spentReason, Header: "retry-after: 60\n", Body: `{"error":{"type":"insufficient_quota","code":"project_spend_limit_exceeded"}}`},
	{Name: "no credit", Status: 429, Ignored: spentReason, Body: `{"error":{"message":"x","code":"credit_balance_exhausted"}}`},
	{Name: "a message about it", Body: `{"error":{"code":"rate_limit_exceeded"}}`},
	{Name: "a wrong key", Status: 401, Body: `{"error":{"type":"invalid_request_error","code":"invalid_api_key"}}`},
}

func TestOpenAIDetector(t *testing.T) { check(t, OpenAIDetector(), openAIRows) }

// anthropicRows: the errors of https://docs.anthropic.com/en/api/errors; the spending limit as Microsoft's Dev Proxy
// documents it, https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/anthropic-529-overloaded-error.
var anthropicRows = []detection{
	{Name: "documented", Status: 429, Until: 13 * time.Second, Want: throttled(ScopeAccount, "rate_limit_error"), Header: "retry-after: 13\n",
		Body: `{"type":"error","error":{"type":"rate_limit_error","message":"Number of request tokens has exceeded your per-minute rate limit"},"request_id":"req_1"}`},
	{Name: "by the field of a limit", Status: 429, Until: 28 * time.Second, Want: throttled(ScopeAccount, "rate_limit_error"),
		Header: "anthropic-ratelimit-output-tokens-remaining: 0\nanthropic-ratelimit-output-tokens-reset: 2026-09-02T16:01:30Z\nanthropic-ratelimit-requests-remaining: 9\nanthropic-ratelimit-requests-reset: 2026-09-02T16:02:00Z\n",
		Body:   `{"type":"error","error":{"type":"rate_limit_error","message":"x"}}`},
	{Name: "overloaded", Status: 529, Until: -1, Want: throttled(ScopeAccount, "overloaded_error"), Body: `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`},
	{Name: "the month's spending", Status: 429, Ignored: spentReason,
		Body: `{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}`},
	{Name: "a server that fails", Status: 500, Body: `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`},
}

func TestAnthropicDetector(t *testing.T) { check(t, AnthropicDetector(), anthropicRows) }

// dashScopeRows: the codes of https://help.aliyun.com/zh/model-studio/error-code.
var dashScopeRows = []detection{
	{Name: "requests", Status: 429, Until: -1, Want: throttled(ScopeAccount, "Throttling.RateQuota"), Body: `{"code":"Throttling.RateQuota","message":"Requests rate limit exceeded, please try again later.","request_id":"1"}`},
	{Name: "tokens", Status: 429, Until: -1, Want: throttled(ScopeAccount, "Throttling.AllocationQuota"), Body: `{"code":"Throttling.AllocationQuota","message":"Allocated quota exceeded, please increase your quota limit.","request_id":"1"}`},
	{Name: "as OpenAI has it", Status: 429, Until: -1, Want: throttled(ScopeAccount, "limit_requests"), Body: `{"error":{"message":"You exceeded your current requests list.","type":"limit_requests","param":null,"code":"limit_requests"}}`},
	{Name: "nothing left to spend", Status: 429, Ignored: spentReason, Body: `{"error":{"message":"x","type":"insufficient_quota","code":"insufficient_quota"}}`},
	{Name: "a free tier", Status: 403, Body: `{"code":"AllocationQuota.FreeTierOnly","message":"x"}`},
	{Name: "an unpaid account", Status: 400, Body: `{"code":"Arrearage","message":"x"}`},
}

func TestDashScopeDetector(t *testing.T) { check(t, DashScopeDetector(), dashScopeRows) }

// s3Rows: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, and for OSS
// https://help.aliyun.com/en/oss/user-guide/http-status-code-503.
var s3Rows = []detection{
	{Name: "S3", Status: 503, Header: "Content-Type: application/xml\n", Until: -1, Want: throttled("", "SlowDown"),
		Body: `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message><RequestId>B3EB633B8A7B895D</RequestId><HostId>x</HostId></Error>`},
	{Name: "busy", Status: 503, Header: "Content-Type: application/xml\n", Until: -1, Want: throttled("", "ServiceUnavailable"), Body: `<Error><Code>ServiceUnavailable</Code></Error>`},
	{Name: "with a wait", Status: 503, Header: "Content-Type: text/xml\nRetry-After: 90\n", Until: 90 * time.Second, Want: throttled("", "SlowDown"), Body: `<Error><Code>SlowDown</Code></Error>`},
	{Name: "OSS, requests", Status: 503, Header: "Content-Type: application/xml\n", Until: -1, Want: throttled("", "TotalQpsLimitExceeded"), Body: `<Error><Code>TotalQpsLimitExceeded</Code></Error>`},
	{Name: "OSS, 429", Status: 429, Header: "Content-Type: application/xml\n", Until: -1, Want: throttled("", "QpsLimitExceeded"), Body: `<Error><Code>QpsLimitExceeded</Code></Error>`},
	{Name: "OSS, traffic", Status: 503, Header: "Content-Type: application/xml\n", Until: -1, Want: throttled("", "UploadTrafficRateLimitExceeded"), Body: `<Error><Code>UploadTrafficRateLimitExceeded</Code></Error>`},
	{Name: "a server that is down", Status: 503, Header: "Content-Type: application/xml\n", Body: `<Error><Code>InternalError</Code></Error>`},
	{Name: "an object", Header: "Content-Type: application/xml\n", Body: `<Error><Code>SlowDown</Code></Error>`},
	{Name: "a proxy's page", Status: 503, Body: `<html><body>503 Slow Down</body></html>`},
}

func TestS3Detector(t *testing.T) {
	check(t, S3Detector(), s3Rows)
	for name, want := range map[string]bool{"X-Amz-Request-Id": true, "X-Oss-Request-Id": true, "X-Request-Id": false} {
		r := detection{Status: 503, Header: name + ": 1\n", URL: "https://bucket.s3.amazonaws.com/key"}.Response()
		require.False(t, S3Detector().Detect(r).Throttled, "a body was sent, and was no rejection's")
		r.Request.Method = "HEAD"
		require.Equal(t, want, S3Detector().Detect(r).Throttled, name)
	}
}

// TestTencentDetector: https://cloud.tencent.com/document/api/213/30435.
func TestTencentDetector(t *testing.T) {
	check(t, TencentDetector(), []detection{
		{Name: "documented", Until: time.Second, Want: throttled("", "RequestLimitExceeded"), Body: `{"Response":{"Error":{"Code":"RequestLimitExceeded","Message":"x"},"RequestId":"1"}}`},
		{Name: "of an account", Until: time.Second, Want: throttled("", "RequestLimitExceeded.UinLimitExceeded"), Body: `{"Response":{"Error":{"Code":"RequestLimitExceeded.UinLimitExceeded","Message":"x"},"RequestId":"1"}}`},
		{Name: "another", Body: `{"Response":{"Error":{"Code":"LimitExceeded","Message":"x"},"RequestId":"1"}}`},
		{Name: "success", Body: `{"Response":{"RequestId":"1"}}`},
	})
}

// TestNothingLeftToSpend checks that an account without credit does not cool down the fleet, and that one which sends too
// fast does.
func TestNothingLeftToSpend(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		answer := openAIRows[7]
		require.Equal(t, spentReason, answer.Ignored)
		says := func(d detection) func(*http.Request) *http.Response {
			return func(*http.Request) *http.Response {
				r := d.Response()
				resp := respond(r.Status, "application/json", d.Body)
				resp.Header = r.Header
				return resp
			}
		}
		send := func(tr *httplimit.Transport) int {
			resp, _ := get(t, tr, "https://api.openai.com/v1/responses")
			return resp.StatusCode
		}
		p := &platform{answer: says(answer)}
		tr := w.transport(p, httplimit.WithProfile(OpenAI(w.key)))
		require.Equal(t, 429, send(tr))
		require.Contains(t, w.kinds(), httplimit.EventIgnored)
		require.Equal(t, 429, send(tr))
		require.Less(t, w.elapsed(), time.Second, "nobody waited")
		p.answer = says(openAIRows[2])
		require.Equal(t, 429, send(tr))
		require.Contains(t, w.kinds(), httplimit.EventCoolDown)
		p.answer = nil
		require.Equal(t, 200, send(tr))
		require.GreaterOrEqual(t, w.elapsed(), 7*time.Second)
	})
}
