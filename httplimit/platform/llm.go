// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
)

// An llm is what tells a platform of language models from others.
type llm struct {
	busy   []int       // statuses of a platform that has too much to do for everybody
	fields [][2]string // of the header: what remains of a limit, and when it opens again
	at     []string    // paths of the codes in a body
	spent  []string    // codes of an account that has nothing left to spend, for which no wait helps
}

// openAIFields are those of OpenAI: the resets are durations such as 6m0s.
var openAIFields = [][2]string{
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
}

// spentReason is why such a response is ignored.
const spentReason = "the account has nothing left to spend, and waiting does not help"

// llmMax bounds what a header makes of a penalty: the windows are of a minute, and some of a day.
const llmMax = 5 * time.Minute

// detector returns a Detector of 429, and of the statuses of a platform that is busy.
func (m llm) detector() httplimit.Detector {
	throttles := func(status int) bool { return status == http.StatusTooManyRequests || slices.Contains(m.busy, status) }
	needs := func(status int, header http.Header) bool {
		return throttles(status) && !envelope.IsFile(status, header)
	}
	return selective{needs: needs, DetectorFunc: detector(func(r answer) httplimit.Verdict {
		if !needs(r.Status, r.Header) {
			return httplimit.Verdict{}
		}
		code, texts := "", envelope.JSONTexts(r.Body, r.Complete)
		for _, at := range m.at {
			found := strings.Join(texts(at), "") // there is one at most
			if slices.Contains(m.spent, found) {
				return ignored(found, spentReason)
			}
			if code == "" {
				code = found
			}
		}
		if code == "" {
			code = "status " + strconv.Itoa(r.Status)
		}
		v := httplimit.Verdict{Throttled: true, Scope: ScopeAccount, Reason: code}
		if wait, ok := envelope.RetryAfter(r.Header, r.Now); ok {
			return r.bounded(v, wait, llmMax)
		}
		if wait, ok := m.reset(r); ok {
			return r.bounded(v, wait, llmMax)
		}
		return v
	})}
}

// reset returns the longest wait of the limits of which the header says that nothing remains.
func (m llm) reset(r answer) (longest time.Duration, known bool) {
	w := envelope.Waits{Header: r.Header, Now: r.Now}
	for _, f := range m.fields {
		if r.Header.Get(f[0]) == "0" {
			w.AddField(f[1])
		}
	}
	return w.Longest, w.Known
}

// OpenAIDetector returns a Detector of the rejections of api.openai.com, and of platforms that respond as it does:
// HTTP 429, or 503 if the platform is overloaded, with a JSON error. Until is that of Retry-After, otherwise that of
// x-ratelimit-reset-requests or -tokens if nothing remains of that limit, otherwise zero. It is at most five minutes
// away.
//
// An account without credit gets 429, too, with the type insufficient_quota or one of four codes. That is
// [httplimit.Verdict.Ignored]: no wait helps, and a fleet that cools down would not send the request that finds out
// that credit was bought.
// (https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors)
func OpenAIDetector() httplimit.Detector {
	return llm{
		busy: []int{http.StatusServiceUnavailable}, fields: openAIFields,
		at: []string{"error.code", "error.type"},
		spent: []string{"insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
			"project_spend_limit_exceeded", "organization_usage_limit_exceeded"},
	}.detector()
}

// AnthropicDetector returns a Detector of the rejections of api.anthropic.com: HTTP 429 with rate_limit_error, or 529
// if the platform is overloaded. Until is that of Retry-After, otherwise that of anthropic-ratelimit-requests-reset
// or a similar field if nothing remains of that limit, otherwise zero. It is at most five minutes away. The monthly
// spending limit (error.details.error_code enforced_spend_limit_reached) is [httplimit.Verdict.Ignored], because no
// reasonable wait helps. (https://docs.anthropic.com/en/api/rate-limits, https://docs.anthropic.com/en/api/errors)
func AnthropicDetector() httplimit.Detector {
	return llm{
		busy: []int{529},
		fields: [][2]string{
			{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
			{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
			{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
			{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
		},
		at: []string{"error.details.error_code", "error.type"}, spent: []string{"enforced_spend_limit_reached", "billing_error"},
	}.detector()
}

// DashScopeDetector returns a Detector of the rejections of dashscope.aliyuncs.com (Alibaba Cloud Model Studio): HTTP
// 429 with a code such as Throttling.RateQuota, in code or, as with OpenAI, in error.code. Until is that of
// Retry-After, or zero without it: the platform usually opens again within a minute. The code insufficient_quota, and
// the codes of an exhausted free tier or an unpaid account, are [httplimit.Verdict.Ignored].
// (https://help.aliyun.com/zh/model-studio/rate-limiting-best-practices,
// https://help.aliyun.com/zh/model-studio/error-code)
func DashScopeDetector() httplimit.Detector {
	return llm{
		fields: openAIFields, at: []string{"code", "error.code", "error.type"},
		spent: []string{"insufficient_quota", "Arrearage", "AllocationQuota.FreeTierOnly"},
	}.detector()
}

// OpenAI returns the profile of an account's calls of api.openai.com, or with [WithHosts] of a platform that responds
// as it does:
//
//	account  10,000 in 1 min
//
// (https://platform.openai.com/docs/guides/rate-limits, the highest tier; WithRate(ScopeAccount, n, time.Minute) sets
// the rate of your tier.) The argument account names who is billed; everybody who reads Redis can see it. OpenAI does
// not punish: a margin of 0 and FailOpen may do.
func OpenAI(account string, opts ...Option) httplimit.Profile {
	return llmProfile("openai", "api.openai.com", account, 10_000, OpenAIDetector(), opts)
}

// Anthropic returns the profile of an organisation's calls of api.anthropic.com:
//
//	account  4,000 in 1 min
//
// (https://docs.anthropic.com/en/api/rate-limits, the highest tier.) Otherwise it is like [OpenAI].
func Anthropic(account string, opts ...Option) httplimit.Profile {
	return llmProfile("anthropic", "api.anthropic.com", account, 4_000, AnthropicDetector(), opts)
}

// DashScope returns the profile of an account's calls of dashscope.aliyuncs.com and dashscope-intl.aliyuncs.com:
//
//	account  15,000 in 1 min
//
// (https://help.aliyun.com/zh/model-studio/flow-agent-rate-limiting; set the number of your model by [WithRate].)
// Otherwise it is like [OpenAI].
func DashScope(account string, opts ...Option) httplimit.Profile {
	return llmProfile("dashscope", "dashscope.aliyuncs.com", account, 15_000, DashScopeDetector(),
		append([]Option{WithHosts("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com")}, opts...))
}

func llmProfile(name, host, account string, perMinute int64, d httplimit.Detector, opts []Option) httplimit.Profile {
	p := newProfile(name, []string{host}, []quota{{scope: ScopeAccount, permits: perMinute, interval: time.Minute}}, []string{withTokens}, opts)
	p.needs("account", account)
	limits := p.limits(ScopeAccount, literal(account))
	if p.tokens != nil {
		limits = append(limits, p.tokens.limitOf(p, account))
	}
	return p.made(httplimit.Rule{Name: p.name, Match: httplimit.Match{Hosts: p.hosts}, Limits: limits, Detectors: p.adjust(nil, d)})
}
