// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
)

// WithTokens keeps the tokens of a language model within so many a minute, as a limit of ScopeTokens. estimate says how
// many a request will take, which it cannot know; when the answer has come, [Tokens] settles it. The default is to keep no
// count of tokens. It is for [OpenAI], [Anthropic] and [DashScope].
func WithTokens(perMinute int64, estimate func(*http.Request) int64) Option {
	return func(p *profile) { p.tokens = &tokens{perMinute, estimate} }
}

type tokens struct {
	perMinute int64
	estimate  func(*http.Request) int64
}

// limitOf returns the limit of the tokens of an account.
func (t tokens) limitOf(p *profile, account string) httplimit.Limit {
	l := p.limit(quota{scope: ScopeTokens, permits: t.perMinute, interval: time.Minute}, literal(account))
	l.WeightFunc, l.Settle = t.estimate, Tokens
	return l
}

// Each is the number of a usage: https://platform.openai.com/docs/api-reference/chat/object and
// https://docs.anthropic.com/en/api/messages. Within a string of JSON a quotation mark has a backslash before it, so what a
// model or a user wrote does not match.
var (
	totalTokens = regexp.MustCompile(`"total_tokens"\s*:\s*(\d{1,15})`)
	partTokens  = []*regexp.Regexp{
		regexp.MustCompile(`"input_tokens"\s*:\s*(\d{1,15})`),
		regexp.MustCompile(`"cache_creation_input_tokens"\s*:\s*(\d{1,15})`),
		regexp.MustCompile(`"output_tokens"\s*:\s*(\d{1,15})`),
	}
)

// Tokens is an [httplimit.Limit.Settle] for tokens of language models. It returns the total of the usage at the end of a
// response of OpenAI, Anthropic or DashScope, whether JSON or a stream of events; 0 for an error, and -1 where there is no usage: a
// stream of OpenAI has one only with stream_options.include_usage.
func Tokens(resp *http.Response) int64 {
	if resp.StatusCode >= http.StatusBadRequest {
		return 0
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1
	}
	if n, ok := lastNumber(totalTokens, body); ok {
		return n
	}
	sum, known := int64(0), false
	for _, part := range partTokens {
		n, ok := lastNumber(part, body)
		sum, known = sum+n, known || ok
	}
	if !known {
		return -1
	}
	return sum
}

// lastNumber returns the last number that a pattern finds, since those of a stream grow.
func lastNumber(pattern *regexp.Regexp, body []byte) (int64, bool) {
	all := pattern.FindAllSubmatch(body, -1)
	if len(all) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(all[len(all)-1][1]), 10, 64)
	return n, err == nil
}
