// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// sse returns a stream of events of the lines: of "name {…}" an event of that name, of "{…}" one without.
func sse(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		if name, data, ok := strings.Cut(line, " {"); ok && !strings.ContainsAny(name, `{[":`) {
			b.WriteString("event: " + name + "\ndata: {" + data + "\n\n")
			continue
		}
		b.WriteString("data: " + line + "\n\n")
	}
	return b.String()
}

// A tool's arguments and result, which are the user's and the model's.
const mischief = `{"total_tokens":1,"usage":{"total_tokens":1,"input_tokens":1,"output_tokens":1},"usageMetadata":{"totalTokenCount":1}}`

var quoted = `"` + strings.ReplaceAll(mischief, `"`, `\"`) + `"`

// anthropic is a stream as https://docs.anthropic.com/en/api/messages-streaming has it, and its first part.
var anthropicStart = sse(
	`message_start {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"claude","stop_reason":null,"usage":{"input_tokens":50000,"cache_creation_input_tokens":0,"cache_read_input_tokens":7,"output_tokens":1}}}`,
	`content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":`+mischief+`}}`,
	`ping {"type": "ping"}`)

var anthropicWords = strings.Repeat(sse(`content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":`+quoted+`}}`), 1000)

var anthropicEnd = sse(`content_block_stop {"type":"content_block_stop","index":0}`,
	`message_delta {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":600}}`)

var anthropicStop = sse(`message_stop {"type":"message_stop"}`)

var openAIWords = strings.Repeat(sse(`{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":`+quoted+`}}]},"finish_reason":null}],"usage":null}`), 500)

// choice returns an event of OpenAI's for platforms that count in each.
func choice(index int, finish, total string) string {
	return fmt.Sprintf(`{"choices":[{"index":%d,"delta":{"content":"x"},"finish_reason":%s}],"usage":{"total_tokens":%s}}`, index, finish, total)
}

const openAIEnd = `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`

const openAIUsage = `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":5010,"total_tokens":5029,"prompt_tokens_details":{"cached_tokens":0}}}`

// usageRows are the responses of each platform as its documentation has them, with more than 64 KiB around them.
var usageRows = []struct {
	name   string
	body   string
	want   int64
	early  int64 // when the caller closes it without reading its last 2 bytes
	status int
}{
	{name: "OpenAI, chat", body: `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":` + quoted + `,"tool_calls":[{"type":"function","function":{"name":"f","arguments":` + quoted + `}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"completion_tokens_details":{"reasoning_tokens":0,"total_tokens":3}}}`, want: 29, early: -1},
	{name: "OpenAI, chat, the usage first", body: `{"usage":{"total_tokens":29},"choices":[{"message":{"content":"` + strings.Repeat("word ", 100_000) + `"}}],"metadata":` + mischief + `}`, want: 29, early: -1},
	{name: "OpenAI, a stream", body: openAIWords + sse(openAIEnd, openAIUsage, "[DONE]"), want: 5029, early: 5029},
	{name: "OpenAI, a stream without usage", body: openAIWords + sse(openAIEnd, "[DONE]"), want: -1, early: -1},
	{name: "OpenAI, a response", body: `{"id":"resp_1","object":"response","output":[{"type":"function_call","arguments":` + quoted + `,"parsed":` + mischief + `}],"metadata":` + mischief + `,"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87,"total_tokens":123}}`, want: 123, early: -1},
	{name: "OpenAI, a stream of a response", body: sse(`response.created {"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}`) +
		strings.Repeat(sse(`response.output_text.delta {"type":"response.output_text.delta","delta":`+quoted+`}`), 500) +
		sse(`response.completed {"type":"response.completed","response":{"id":"resp_1","output":[{"content":`+mischief+`}],"usage":{"input_tokens":37,"output_tokens":11,"total_tokens":48}}}`), want: 48, early: 48},
	{name: "more tokens than can be meant", body: `{"object":"list","usage":{"total_tokens":4294967295}}`, want: -1, early: -1},
	{name: "OpenAI, embeddings", body: `{"object":"list","data":[{"embedding":[` + strings.Repeat("-0.0023,", 20_000) + `1e-3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`, want: 8, early: -1},
	{name: "Anthropic", body: `{"id":"msg_1","type":"message","content":[{"type":"tool_use","input":` + mischief + `}],"usage":{"input_tokens":2095,"cache_creation_input_tokens":5,"cache_read_input_tokens":7,"output_tokens":503}}`, want: 2603, early: -1},
	{name: "Anthropic, a stream", body: anthropicStart + anthropicWords + anthropicEnd + anthropicStop, want: 50_600, early: 50_600},
	{name: "Anthropic, a stream that breaks off", body: anthropicStart + anthropicWords, want: -1, early: -1},
	{name: "Anthropic, a stream with an error", body: anthropicStart + sse(`error {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), want: -1, early: -1},
	{name: "Anthropic, a stream whose end repeats the input", body: anthropicStart + sse(`message_delta {"type":"message_delta","usage":{"input_tokens":50000,"output_tokens":15}}`) + anthropicStop, want: 50_015, early: 50_015},
	{name: "DashScope", body: `{"output":{"text":` + quoted + `,"finish_reason":"stop"},"usage":{"total_tokens":8,"input_tokens":3,"output_tokens":5},"request_id":"1"}`, want: 8, early: -1},
	{name: "DashScope, a stream", body: "id:1\nevent:result\n:HTTP_STATUS/200\ndata:{\"output\":{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"null\"}]},\"usage\":{\"total_tokens\":4,\"input_tokens\":3,\"output_tokens\":1}}\n\n" +
		"id:2\nevent:result\n:HTTP_STATUS/200\ndata:{\"output\":{\"choices\":[{\"message\":{\"content\":\"y\"},\"finish_reason\":\"stop\"}]},\"usage\":{\"total_tokens\":8,\"input_tokens\":3,\"output_tokens\":5}}\n\n", want: 8, early: 8},
	{name: "DashScope, a stream that breaks off", body: "data:{\"output\":{\"finish_reason\":\"null\"},\"usage\":{\"total_tokens\":4}}\n\ndata:{\"output\"", want: -1, early: -1},
	{name: "Gemini", body: `{"candidates":[{"content":{"parts":[{"functionCall":{"args":` + mischief + `}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":12,"totalTokenCount":16}}`, want: 16, early: -1},
	{name: "Gemini, an array", body: "[{\"candidates\":[],\"usageMetadata\":{\"totalTokenCount\":5}}\n,\r\n{\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"totalTokenCount\":16}}]\n", want: 16, early: -1},
	{name: "Gemini, a stream", body: strings.ReplaceAll(sse(`{"candidates":[{}],"usageMetadata":{"totalTokenCount":5}}`, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":16}}`), "\n", "\r\n"), want: 16, early: 16},
	{name: "Gemini, a stream that breaks off", body: sse(`{"candidates":[{}],"usageMetadata":{"totalTokenCount":5}}`), want: -1, early: -1},
	{name: "Gemini, a prompt that is blocked", body: sse(`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"totalTokenCount":5}}`), want: 5, early: 5},
	{name: "OpenAI, a stream that breaks off", body: sse(choice(0, "null", "10"), choice(0, "null", "11")), want: -1, early: -1},
	{name: "OpenAI, a stream with an error", body: sse(choice(0, "null", "10"), `{"error":{"message":"x"}}`), want: -1, early: -1},
	{name: "OpenAI, one of two choices", body: sse(choice(0, "null", "10"), choice(0, `"stop"`, "12"), choice(1, "null", "13")), want: -1, early: -1},
	{name: "OpenAI, two choices", body: sse(choice(0, "null", "10"), choice(0, `"stop"`, "12"), choice(1, "null", "13"), choice(1, `"stop"`, "14")), want: 14, early: 14},
	{name: "OpenAI, the usage before the end", body: sse(choice(0, "null", "10"), openAIEnd), want: 10, early: -1},
	{name: "a last count that is too large", body: sse(choice(0, "null", "10"), choice(0, `"stop"`, "1e300"), "[DONE]"), want: -1, early: -1},
	{name: "a last count that is negative", body: sse(choice(0, "null", "10"), choice(0, `"stop"`, "-1"), "[DONE]"), want: -1, early: -1},
	{name: "a last count that is none", body: sse(choice(0, "null", "10"), choice(0, `"stop"`, "null"), "[DONE]"), want: 10, early: 10},
	{name: "Anthropic, no output", body: `{"type":"message","usage":{"input_tokens":25,"output_tokens":null}}`, want: -1, early: -1},
	{name: "texts", body: `{"usage":{"total_tokens":7}}` + "\n" + `{"usage":{"total_tokens":50}}`, want: 50, early: -1},
	{name: "a text and something", body: `{"usage":{"total_tokens":7}} and more`, want: -1, early: -1},
	{name: "only a tool's", body: `{"choices":[{"message":{"tool_calls":[{"function":{"arguments":` + mischief + `}}]}}]}`, want: -1, early: -1},
	{name: "another count", body: `{"usage":{"total_tokens":"1","prompt_tokens":-1,"input_tokens":1.5,"output_tokens":1e3}}`, want: -1, early: -1},
	{name: "malformed", body: `{"usage":{"total_tokens":1},]}`, want: -1, early: -1},
	{name: "an event that is malformed", body: sse(`{"message":{"usage":{"input_tokens":500`, `{"usage":{"input_tokens":0,"output_tokens":5}}`), want: -1, early: -1},
	{name: "too deep", body: `{"choices":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `,"usage":{"total_tokens":1}}`, want: -1, early: -1},
	{name: "a page", body: "<html>\ndata: {\"usage\":{\"total_tokens\":1}}\n\n</html>", want: -1, early: -1},
	{name: "nothing", want: -1, early: -1},
	{name: "an error", status: 429, body: `{"error":{"message":"x"},"usage":{"total_tokens":9}}`, want: 0, early: 0},
}

// TestTokens checks the usage of every response, whatever parts it comes in.
func TestTokens(t *testing.T) {
	for _, row := range usageRows {
		t.Run(row.name, func(t *testing.T) {
			status := max(row.status, 200)
			of := func(body io.Reader) int64 {
				resp := respond(status, "application/json", "")
				resp.Body = io.NopCloser(body)
				return Tokens(resp)
			}
			require.Equal(t, row.want, of(strings.NewReader(row.body)))
			require.Equal(t, row.want, of(iotest.OneByteReader(strings.NewReader(row.body))))
			require.Equal(t, row.want, of(iotest.DataErrReader(strings.NewReader(row.body))))
			for seed := range uint64(5) {
				require.Equal(t, row.want, of(&parts{rand.New(rand.NewPCG(seed, 1)), strings.NewReader(row.body)}), "seed %d", seed)
			}
			short := row.body[:max(0, len(row.body)-2)]
			require.Equal(t, row.early, of(io.MultiReader(strings.NewReader(short), iotest.ErrReader(errors.New("closed")))), "closed early")
			for _, contentType := range []string{"text/event-stream", "text/plain; charset=utf-8", ""} {
				if events := row.body != "" && !strings.ContainsAny(row.body[:1], "{[<"); events == (contentType == "text/event-stream") {
					require.Equal(t, row.want, Tokens(respond(status, contentType, row.body)), contentType)
				}
			}
		})
	}
	file := respond(200, "application/json", `{"usage":{"total_tokens":9}}`)
	file.Header.Set("Content-Disposition", "attachment")
	require.EqualValues(t, -1, Tokens(file), "a file is a user's")
}

// A parts reader reads parts of random sizes.
type parts struct {
	random *rand.Rand
	io.Reader
}

func (p *parts) Read(b []byte) (int, error) {
	return p.Reader.Read(b[:min(len(b), 1+p.random.IntN(1<<p.random.IntN(14)))])
}

// TestWithTokens checks that tokens are settled by what the platform counted, in each coding that the Transport reads, that the
// caller gets each byte as it was sent, and that an estimate that stays is told.
func TestWithTokens(t *testing.T) {
	codings := map[string]func(io.Writer) io.WriteCloser{
		"":        nil,
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	}
	for coding, pack := range codings {
		inWorld(t, func(t *testing.T, w *world) {
			var resp *http.Response
			tr := w.transport(base(func(*http.Request) (*http.Response, error) { return resp, nil }),
				httplimit.WithProfile(Anthropic(w.key, WithTokens(1_000_000, func(*http.Request) int64 { return 700 }))))
			tokens := w.client.RateLimiter("{anthropic}:tokens:" + w.key + ":1m")
			left := int64(1_000_000)
			for _, row := range usageRows {
				body := row.body
				if pack != nil {
					var b bytes.Buffer
					z := pack(&b)
					redistest.Must(io.WriteString(z, body))(t)
					require.NoError(t, z.Close())
					body = b.String()
				}
				contentType := "text/event-stream"
				if strings.ContainsAny(row.body[:min(1, len(row.body))], "{[<") {
					contentType = "application/json"
				}
				resp = respond(max(row.status, 200), contentType, body)
				resp.Header.Set("Content-Encoding", coding)
				resp.ContentLength = -1
				got := redistest.Must(tr.RoundTrip(request(t, "POST", "https://api.anthropic.com/v1/messages", nil)))(t)
				text := redistest.Must(io.ReadAll(&parts{rand.New(rand.NewPCG(1, 2)), got.Body}))(t)
				require.Equal(t, body, string(text), row.name)
				require.NoError(t, got.Body.Close())
				unsettled := 0
				for _, e := range w.taken() {
					if e.Kind == httplimit.EventUnsettled {
						unsettled++
						require.Error(t, e.Err)
						require.Equal(t, tokens.Name(), e.Limiter)
					}
				}
				if row.want < 0 {
					left -= 700
					require.Equal(t, 1, unsettled, row.name)
				} else {
					left -= row.want
					require.Zero(t, unsettled, row.name)
				}
				require.Equal(t, left, redistest.Must(tokens.AvailablePermits(t.Context()))(t), row.name)
			}
		})
	}
}

// TestTokensOfThrottledAttempts: an attempt that the platform rejected has used no tokens, and the one that follows settles its own.
func TestTokensOfThrottledAttempts(t *testing.T) {
	for _, permits := range []int64{100, 2} { // enough requests for all attempts, or for the throttled ones alone
		inWorld(t, func(t *testing.T, w *world) {
			attempts := 0
			tr := w.transport(base(func(*http.Request) (*http.Response, error) {
				if attempts++; attempts <= 2 {
					resp := respond(429, "application/json", `{"error":{"code":"rate_limit_exceeded"}}`)
					resp.Header.Set("Retry-After", "1")
					return resp, nil
				}
				return respond(200, "application/json", `{"usage":{"total_tokens":10}}`), nil
			}), httplimit.WithRetry(3), httplimit.WithMaxWait(10*time.Second),
				httplimit.WithProfile(OpenAI(w.key, WithRate(ScopeAccount, permits, time.Minute), WithTokens(10_000, func(*http.Request) int64 { return 1000 }))))
			get(t, tr, "https://api.openai.com/v1/responses")
			left := int64(10_000 - 10)
			if permits == 2 {
				left = 10_000
			}
			require.Equal(t, left, redistest.Must(w.client.RateLimiter("{openai}:tokens:"+w.key+":1m").AvailablePermits(t.Context()))(t))
			require.NotContains(t, w.kinds(), httplimit.EventUnsettled)
		})
	}
}
