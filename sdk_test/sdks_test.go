// SPDX-License-Identifier: Apache-2.0

// Package sdk_test sends requests of real SDKs through a Transport of httplimit, and writes down what becomes of a
// rejection in each: docs/sdks.md.
package sdk_test

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	dingrobot "github.com/alibabacloud-go/dingtalk/robot_1_0"
	teautil "github.com/alibabacloud-go/tea-utils/v2/service"
	dara "github.com/alibabacloud-go/tea/dara"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss"
	osscredentials "github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/credentials"
	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/bwmarrin/discordgo"
	"github.com/go-resty/resty/v2"
	telegram "github.com/go-telegram/bot"
	"github.com/google/go-github/v75/github"
	"github.com/goredisson/ratelimiter/httplimit"
	hosts "github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/hashicorp/go-retryablehttp"
	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	"github.com/open-dingtalk/dingtalk-stream-sdk-go/chatbot"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	goopenai "github.com/sashabaranov/go-openai"
	wechatutil "github.com/silenceper/wechat/v2/util"
	"github.com/slack-go/slack"
	"github.com/stripe/stripe-go/v83"
	tencent "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common"
	tencentprofile "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common/profile"
	sms "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/sms/v20210111"
	"github.com/xen0n/go-workwx"
	gitlab "gitlab.com/gitlab-org/api/client-go"
	resty3 "resty.dev/v3"
)

// An sdk is one that is tried, and what its users have to know.
type sdk struct {
	name   string
	module string
	line   string // by which it uses the Transport
	global bool   // the line sets a variable of a package
	// noContext: a call takes no context, so that only a bound ends its wait.
	noContext bool
	call      func(ctx context.Context, t *httplimit.Transport) error
	form      httplimit.RejectionForm // of its platform
	bounded   bool                    // it waits for the Retry-After of a response
	traps     string
}

const reply = `{"errcode":0,"code":0,"ok":true,"expires_in":7200,"tenant_access_token":"t","expire":7200,"access_token":"t","object":"list",` +
	`"Response":{"RequestId":"1"},"id":"1","choices":[{"message":{"content":"hi"}}],"content":[],"processQueryKey":"1"}`

var sdks = []sdk{
	{
		name: "DingTalk (official)", module: "github.com/alibabacloud-go/dingtalk",
		line:      "`openapi.Config{HttpClient: httplimit.Caller{Transport: t}}`",
		noContext: true,
		call: func(_ context.Context, t *httplimit.Transport) error {
			config := &openapi.Config{HttpClient: httplimit.Caller{Transport: t}}
			config.SetProtocol("https").SetRegionId("central")
			client, err := dingrobot.NewClient(config)
			if err != nil {
				return err
			}
			headers := &dingrobot.BatchSendOTOHeaders{}
			headers.SetXAcsDingtalkAccessToken("t")
			request := &dingrobot.BatchSendOTORequest{RobotCode: dara.String("r"), MsgKey: dara.String("k"), MsgParam: dara.String("{}"), UserIds: []*string{dara.String("u")}}
			_, err = client.BatchSendOTOWithOptions(request, headers, &teautil.RuntimeOptions{})
			return err
		},
		traps: "Needs `darabonba-openapi/v2` v2.1.13 or later, which go.mod must require. The SDK's timeouts and proxy do not apply: set them in the Transport's base.",
	},
	{
		name: "DingTalk Stream", module: "github.com/open-dingtalk/dingtalk-stream-sdk-go",
		line:   "`http.DefaultTransport = t`, with `httplimit.WithBase` of the one before",
		global: true,
		call: func(ctx context.Context, t *httplimit.Transport) error {
			before := http.DefaultTransport
			http.DefaultTransport = t
			defer func() { http.DefaultTransport = before }()
			return chatbot.NewChatbotReplier().SimpleReplyText(ctx, "https://oapi.dingtalk.com/robot/sendBySession?session=1", []byte("hi"))
		},
		traps: "Covers replies only: the stream itself is a WebSocket. The SDK ignores error codes in a response of 200.",
	},
	{
		name: "Feishu, Lark", module: "github.com/larksuite/oapi-sdk-go/v3", form: hosts.FeishuRejection,
		line: "`lark.NewClient(id, secret, lark.WithHttpClient(&http.Client{Transport: t}))`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client := lark.NewClient("id", "secret", lark.WithHttpClient(&http.Client{Transport: t}), lark.WithLogLevel(larkcore.LogLevelError))
			resp, err := client.Get(ctx, "/open-apis/im/v1/chats", nil, larkcore.AccessTokenTypeTenant)
			if err != nil {
				return err
			}
			var code larkcore.CodeError
			if err := json.Unmarshal(resp.RawBody, &code); err != nil {
				return err
			}
			if code.Code != 0 { // !resp.Success() of a call with a type
				return code
			}
			return nil
		},
		traps: "Its token requests use the Transport, too. Without `WithReqTimeout` only the context ends a call.",
	},
	{
		name: "WeChat (silenceper)", module: "github.com/silenceper/wechat/v2",
		line: "`util.DefaultHTTPClient = &http.Client{Transport: t}`", global: true,
		call: func(ctx context.Context, t *httplimit.Transport) error {
			before := wechatutil.DefaultHTTPClient
			wechatutil.DefaultHTTPClient = &http.Client{Transport: t}
			defer func() { wechatutil.DefaultHTTPClient = before }()
			_, err := wechatutil.HTTPGetContext(ctx, "https://api.weixin.qq.com/cgi-bin/token")
			return err
		},
		traps: "All accounts of a process share one client. Most calls take no context.",
	},
	{
		name: "WeCom (go-workwx)", module: "github.com/xen0n/go-workwx", noContext: true,
		line: "`workwx.New(id, workwx.WithHTTPClient(&http.Client{Transport: t}))`",
		call: func(_ context.Context, t *httplimit.Transport) error {
			app := workwx.New("corp", workwx.WithHTTPClient(&http.Client{Transport: t})).WithApp("secret", 1)
			return app.SendTextMessage(&workwx.Recipient{UserIDs: []string{"u"}}, "hi", false)
		},
		traps: "Calls take no context. `SpawnAccessTokenRefresher` retries a rejected token request in the background.",
	},
	{
		name: "GitHub", module: "github.com/google/go-github/v75", form: hosts.GitHubRejection,
		line: "`github.NewClient(&http.Client{Transport: t})`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			_, _, err := github.NewClient(&http.Client{Transport: t}).Users.Get(ctx, "octocat")
			return err
		},
		traps: "After a response with no requests left, it rejects calls itself with `RateLimitError` and sends nothing.",
	},
	{
		name: "OpenAI (official)", module: "github.com/openai/openai-go/v3", form: hosts.OpenAIRejection,
		line: "`openai.NewClient(option.WithHTTPClient(&http.Client{Transport: t}))`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client := openai.NewClient(openaioption.WithAPIKey("k"), openaioption.WithHTTPClient(&http.Client{Transport: t}))
			_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}})
			return err
		},
		traps: "Retries after an error of the Transport and after 429.",
	},
	{
		name: "OpenAI (go-openai)", module: "github.com/sashabaranov/go-openai", form: hosts.OpenAIRejection,
		line: "`config.HTTPClient = &http.Client{Transport: t}`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			config := goopenai.DefaultConfig("k")
			config.HTTPClient = &http.Client{Transport: t}
			_, err := goopenai.NewClientWithConfig(config).CreateChatCompletion(ctx, goopenai.ChatCompletionRequest{Model: "m",
				Messages: []goopenai.ChatCompletionMessage{{Role: "user", Content: "hi"}}})
			return err
		},
	},
	{
		name: "Anthropic", module: "github.com/anthropics/anthropic-sdk-go", form: hosts.AnthropicRejection,
		line: "`anthropic.NewClient(option.WithHTTPClient(&http.Client{Transport: t}))`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client := anthropic.NewClient(anthropicoption.WithAPIKey("k"), anthropicoption.WithHTTPClient(&http.Client{Transport: t}))
			_, err := client.Messages.New(ctx, anthropic.MessageNewParams{Model: "m", MaxTokens: 1, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}})
			return err
		},
		traps: "Retries after an error of the Transport and after 429.",
	},
	{
		name: "resty 2", module: "github.com/go-resty/resty/v2",
		line: "`resty.NewWithClient(&http.Client{Transport: t})`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client := resty.NewWithClient(&http.Client{Transport: t}).SetRetryCount(2)
			resp, err := client.R().SetContext(ctx).Get("https://api.example.com/")
			if err == nil && resp.IsError() {
				return statusError(resp.StatusCode())
			}
			return err
		},
		traps: "Retries are off by default (tested with `SetRetryCount(2)`). A status of 400 or more is not an error.",
	},
	{
		name: "resty 3", module: "resty.dev/v3",
		line: "`resty.New().SetTransport(t)`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client := resty3.New().SetTransport(t).SetRetryCount(2)
			defer func() { _ = client.Close() }()
			resp, err := client.R().SetContext(ctx).Get("https://api.example.com/")
			if err == nil && resp.IsStatusFailure() {
				return statusError(resp.StatusCode())
			}
			return err
		},
		traps: "Retries are off by default (tested with `SetRetryCount(2)`). A status of 400 or more is not an error.",
	},
	{
		name: "retryablehttp", module: "github.com/hashicorp/go-retryablehttp", bounded: true,
		line: "`client.HTTPClient.Transport = t`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client := retryablehttp.NewClient()
			client.HTTPClient.Transport, client.Logger, client.RetryMax, client.RetryWaitMin = t, nil, 2, 100*time.Millisecond
			request, err := retryablehttp.NewRequestWithContext(ctx, "GET", "https://api.example.com/", nil)
			if err != nil {
				return err
			}
			resp, err := client.Do(request)
			if err != nil {
				return err
			}
			if err := resp.Body.Close(); err != nil {
				return err
			}
			if resp.StatusCode >= 400 {
				return statusError(resp.StatusCode)
			}
			return nil
		},
		traps: "Retries after 429 and waits for Retry-After, however long (tested with `RetryMax` 2 instead of 4). Set `CheckRetry` to stop at `httplimit.ErrRejected`.",
	},
	{
		name: "AWS S3", module: "github.com/aws/aws-sdk-go-v2/service/s3",
		line: "`s3.Options{HTTPClient: &http.Client{Transport: t}}`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client := s3.New(s3.Options{Region: "us-east-1", HTTPClient: &http.Client{Transport: t},
				Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					return aws.Credentials{AccessKeyID: "k", SecretAccessKey: "s"}, nil
				})})
			_, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String("bucket")})
			return err
		},
		traps: "Makes up to three attempts, and slows down after 429 and 503.",
	},
	{
		name: "Alibaba Cloud OSS", module: "github.com/aliyun/alibabacloud-oss-go-sdk-v2",
		line: "`oss.LoadDefaultConfig().WithHttpClient(&http.Client{Transport: t})`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client := oss.NewClient(oss.LoadDefaultConfig().WithRegion("cn-hangzhou").WithHttpClient(&http.Client{Transport: t}).
				WithCredentialsProvider(osscredentials.NewStaticCredentialsProvider("k", "s", "")))
			_, err := client.HeadObject(ctx, &oss.HeadObjectRequest{Bucket: oss.Ptr("bucket"), Key: oss.Ptr("key")})
			return err
		},
		traps: "Makes up to three attempts.",
	},
	{
		name: "Tencent Cloud", module: "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/sms",
		line: "`client.WithHttpTransport(t)`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client, err := sms.NewClient(tencent.NewCredential("id", "key"), "ap-guangzhou", tencentprofile.NewClientProfile())
			if err != nil {
				return err
			}
			client.WithHttpTransport(t)
			_, err = client.SendSmsWithContext(ctx, sms.NewSendSmsRequest())
			return err
		},
		traps: "",
	},
	{
		name: "Slack", module: "github.com/slack-go/slack", form: hosts.SlackRejection,
		line: "`slack.New(token, slack.OptionHTTPClient(&http.Client{Transport: t}))`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			_, err := slack.New("t", slack.OptionHTTPClient(&http.Client{Transport: t})).AuthTestContext(ctx)
			return err
		},
		traps: "A 429 is a `RateLimitedError` with its `RetryAfter`. Socket mode is a WebSocket.",
	},
	{
		name: "Discord", module: "github.com/bwmarrin/discordgo", form: hosts.DiscordRejection,
		line: "`session.Client = &http.Client{Transport: t}`, `session.ShouldRetryOnRateLimit = false`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			session, err := discordgo.New("Bot t")
			if err != nil {
				return err
			}
			session.Client, session.ShouldRetryOnRateLimit = &http.Client{Transport: t}, false
			_, err = session.ChannelMessageSend("1", "hi", discordgo.WithContext(ctx))
			return err
		},
		traps: "Retries a 429 for as long as there is one, and sleeps its `retry_after` whatever the context says, unless `ShouldRetryOnRateLimit` is false. It needs `platform.DiscordRejection`: without a `retry_after` it does not sleep. The gateway is a WebSocket.",
	},
	{
		name: "Telegram (go-telegram)", module: "github.com/go-telegram/bot", form: hosts.TelegramRejection,
		line: "`bot.New(token, bot.WithHTTPClient(time.Minute, &http.Client{Transport: t}))`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			b, err := telegram.New("t", telegram.WithSkipGetMe(), telegram.WithHTTPClient(time.Minute, &http.Client{Transport: t}))
			if err != nil {
				return err
			}
			_, err = b.SendMessage(ctx, &telegram.SendMessageParams{ChatID: 1, Text: "hi"})
			return err
		},
		traps: "`getUpdates` uses the Transport, too. The `RetryAfter` of its error needs `platform.TelegramRejection`.",
	},
	{
		name: "GitLab", module: "gitlab.com/gitlab-org/api/client-go", form: hosts.GitLabRejection, bounded: true,
		line: "`gitlab.NewClient(token, gitlab.WithHTTPClient(&http.Client{Transport: t}))`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			client, err := gitlab.NewClient("t", gitlab.WithHTTPClient(&http.Client{Transport: t}))
			if err != nil {
				return err
			}
			_, _, err = client.Users.GetUser(1, gitlab.GetUsersOptions{}, gitlab.WithContext(ctx))
			return err
		},
		traps: "Retries after 429 and waits for `RateLimit-Reset`, however long; without it, only 100 ms, and twice as long each time.",
	},
	{
		name: "Stripe", module: "github.com/stripe/stripe-go/v83",
		line: "`stripe.BackendConfig{HTTPClient: &http.Client{Transport: t}}`",
		call: func(ctx context.Context, t *httplimit.Transport) error {
			backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{HTTPClient: &http.Client{Transport: t}, LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull}})
			_, err := stripe.NewClient("k", stripe.WithBackends(backends)).V1Customers.Retrieve(ctx, "cus_1", nil)
			return err
		},
		traps: "Retries after an error of the Transport, and after some statuses of 400 or more unless `Stripe-Should-Retry` forbids it.",
	},
}

// untried are SDKs that could not be had as modules, by the version that was asked for.
var untried = [][2]string{{"github.com/fastwego/wxwork", "v1.0.0-beta.5, v1.0.0"}}
