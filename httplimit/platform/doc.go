// SPDX-License-Identifier: Apache-2.0

// Package platform knows the published limits of some platforms, for an [httplimit.Transport]. It is not made by any
// of these platforms.
//
//	transport, err := httplimit.New(client, httplimit.WithProfile(platform.DingTalk("dingappkey",
//		platform.WithRate(platform.ScopeAppAPI, 60, time.Second)))) // a larger limit that you have bought
//	if err != nil {
//		return err
//	}
//	api := &http.Client{Transport: transport}
//	if _, err := api.Get("https://oapi.dingtalk.com/topapi/v2/user/get"); err != nil {
//		return httplimit.Redact(err)
//	}
//
// A profile has the limits of a platform as rules, with a detector of its rejections:
//
//   - DingTalk: [DingTalk] for an application and custom robots, [DingTalkRobot] for robots alone. [DingTalkMonth] is
//     the monthly quota.
//   - WeCom: [WeCom]. Feishu and Lark: [Feishu]. GitHub: [GitHub].
//   - Language models: [OpenAI], [Anthropic], and [DashScope] of Alibaba Cloud. [Tokens] counts what they used.
//
// The options change its numbers and names. If the value of an [Option] is out of range, or the platform has no
// such limit, [httplimit.New] returns an [*httplimit.FieldError].
//
// A detector recognizes the responses by which a platform throttles a request, for a rule of your own:
// [DingTalkOldDetector], [DingTalkNewDetector], [DingTalkRobotDetector] and [DingTalkBanDetector]; [WeComDetector],
// [WeChatDetector], [FeishuDetector]; [GitHubDetector]; [OpenAIDetector], [AnthropicDetector], [DashScopeDetector]; [S3Detector] for object
// stores, and [TencentDetector] for Tencent Cloud. [httplimit.HTTPDetector] is for platforms that only send 429.
//
// For [httplimit.WithRejectionResponse], [DiscordRejection], [TelegramRejection], [GitLabRejection], [SlackRejection],
// [GitHubRejection], [FeishuRejection], [OpenAIRejection] and [AnthropicRejection] are the forms in which these platforms
// reject a request, for [httplimit.Rule.Rejection] of a rule of your own. The profiles set theirs.
//
// Profiles are stricter than the platforms, because a platform counts requests when they arrive. Of 20 requests at t
// and 20 more a second later, all 40 arrive within one second if the first are late. So DingTalk's 20 a second are 20 in any
// 1.05 s, 50 ms apart, which holds for delays that differ by less than 50 ms: see [WithMargin] and [WithMinGap].
//
// docs/platforms.md lists all limits with their sources.
package platform
