// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/httplimit/internal/stream"
)

// WithTokens limits the tokens of a language model per minute, as a limit of ScopeTokens. The function estimate
// returns about how many tokens a request will take; when the response has arrived, [Tokens] settles the real number.
// It is for [OpenAI], [Anthropic] and [DashScope]. The default is not to count tokens.
func WithTokens(perMinute int64, estimate func(*http.Request) int64) Option {
	return func(p *profile) {
		p.tokens, p.options = &tokens{perMinute, estimate}, append(p.options, namedOption{name: withTokens})
	}
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

// usagePaths are the places of a platform's own count, and of what says that a response has ended. Nothing else is read: neither what a
// model or a user wrote, nor the arguments and results of tools, which are JSON of their own beside them.
//
//   - usage, in a response or an event: https://platform.openai.com/docs/api-reference/chat/object,
//     https://docs.anthropic.com/en/api/messages, https://help.aliyun.com/zh/model-studio/qwen-api-reference;
//   - response.usage, in an event of OpenAI's Responses: https://platform.openai.com/docs/api-reference/responses-streaming;
//   - message.usage, which begins a stream of Anthropic: https://docs.anthropic.com/en/api/messages-streaming;
//   - usageMetadata of Gemini, which streams events or one array: https://ai.google.dev/api/generate-content#UsageMetadata.
var usagePaths = func() *stream.Paths {
	var list []string
	for at := range usageAt {
		for name := range usageNames {
			list = append(list, at+name)
		}
	}
	return stream.NewPaths(append(list, "usageMetadata.totalTokenCount", "#.usageMetadata.totalTokenCount", "type",
		"choices.#.finish_reason", "output.finish_reason", "output.choices.#.finish_reason", "candidates.#.finishReason",
		"promptFeedback.blockReason")...)
}()

var (
	// usageAt says of each usage whether it is the response's, and not one that comes before the response.
	usageAt = map[string]bool{"usage.": true, "response.usage.": true, "message.usage.": false}

	usageNames = map[string]int{
		"total_tokens": countTotal,
		"input_tokens": countInput, "prompt_tokens": countInput,
		"cache_creation_input_tokens": countCache,
		"output_tokens":               countOutput, "completion_tokens": countOutput,
	}

	// lastEvents are the types of events that have the usage of a whole response.
	lastEvents = []string{`"message_delta"`, `"response.completed"`, `"response.incomplete"`, `"response.failed"`}
)

const (
	countTotal = iota
	countInput
	countCache
	countOutput
	counts
)

// A usage is what a response has said of its tokens so far. Those of a stream grow, so of each count the largest is kept.
type usage struct {
	counts [counts]int64 // and 1 more: 0 is one that is not known
	final  bool          // there was one that is the response's
	odd    bool          // there was one that cannot be read, so that the others may be a part
	ended  bool          // the response said that it has ended
	open   bool          // of an event: something that it is about has not
	done   bool          // there was OpenAI's end of all events
	whole  bool          // there was a count of the response's with its end, or after it
}

// note adds a value at a path.
func (u *usage) note(path, value string) {
	at, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		at, name = path[:i+1], path[i+1:]
	}
	switch own, ok := usageAt[at]; {
	case ok:
		u.count(usageNames[name], value, own)
	case name == "totalTokenCount":
		u.count(countTotal, value, true)
	case name == "type":
		u.ended = u.ended || slices.Contains(lastEvents, value)
	case path == "":
		u.done = true
	case value == "null" || value == `"null"` || value == `""`: // DashScope writes "null" until there is a reason to finish
		u.open = true
	default:
		u.ended = true
	}
}

// maxTokens is more tokens than one response can mean: of the models known, the largest reads some ten million.
const maxTokens = 100_000_000

// count notes a count, which is a whole number of at most maxTokens.
func (u *usage) count(which int, value string, own bool) {
	if value == "null" {
		return
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || !envelope.IsDigits(value) || n > maxTokens {
		u.odd = true
		return
	}
	u.counts[which] = max(u.counts[which], n+1)
	u.final = u.final || own
}

// add adds what a further event said. One of several choices ends a stream only until another goes on.
func (u *usage) add(v usage) {
	for i, n := range v.counts {
		u.counts[i] = max(u.counts[i], n)
	}
	if v.ended || v.open {
		u.ended, u.whole = !v.open, false
	}
	u.whole = u.whole || u.ended && v.final
	u.final, u.odd, u.done = u.final || v.final, u.odd || v.odd, u.done || v.done
}

// total returns the total, or -1 if it is not known.
func (u *usage) total() int64 {
	switch {
	case !u.final || u.odd:
	case u.counts[countTotal] > 0:
		return u.counts[countTotal] - 1
	case u.counts[countInput] > 0 && u.counts[countOutput] > 0:
		sum := int64(0)
		for _, n := range u.counts[countInput:] {
			sum += max(n-1, 0)
		}
		return sum
	}
	return -1
}

// Tokens is an [httplimit.Limit.Settle] for tokens of language models. It returns the total of the usage in a
// response of OpenAI, Anthropic, DashScope or Gemini, whether JSON or a stream of events; 0 for an error; and -1 if
// the usage is not known:
//
//   - there is none: a stream of OpenAI has it only with stream_options.include_usage;
//   - the body ends, or is closed, before the usage of the whole response, or a stream before it has said that it ended;
//   - one of its counts cannot be read, or is more than a hundred million;
//   - it is a file, or malformed, or nested more than 10,000 deep.
//
// It reads the body as it passes, and keeps a few kilobytes of it, however long it is. It reads only the platform's
// own count, and never one inside a message, a tool's arguments or another value.
func Tokens(resp *http.Response) int64 {
	if resp.StatusCode >= http.StatusBadRequest {
		return 0
	}
	if envelope.IsFile(resp.StatusCode, resp.Header) || resp.Body == nil {
		return -1
	}
	r := stream.NewReader(resp.Body, envelope.MediaType(resp.Header), usagePaths)
	var all usage
	for {
		var u usage
		whole, err := r.Next(u.note)
		switch {
		case whole:
			if !r.Events() { // a JSON text is all there is
				u.ended, u.open = true, false
			}
			all.add(u)
		case err == nil: // what cannot be read may have had a part of the usage
			return -1
		case all.done || all.whole || all.ended && errors.Is(err, io.EOF):
			return all.total()
		default:
			return -1
		}
	}
}
