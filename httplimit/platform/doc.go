// SPDX-License-Identifier: Apache-2.0

// Package platform has profiles and detectors of some platforms, for an [httplimit.Transport]. A profile holds a
// platform's published limits as rules. A detector recognizes the responses by which a platform throttles a request.
// There are profiles of DingTalk, WeCom, Feishu (Lark), GitHub, OpenAI, Anthropic and DashScope, and more detectors,
// such as those of WeChat, Amazon S3 and Tencent Cloud.
//
//	transport, err := httplimit.New(client, httplimit.WithProfile(platform.DingTalk("dingappkey",
//		platform.WithRate(platform.ScopeAppAPI, 60, time.Second))))
//
// [DingTalk], [DingTalkRobot], [WeCom], [Feishu], [GitHub], [OpenAI], [Anthropic] and [DashScope] make a profile; you
// may change its rules and add to them. If the value of an [Option] is out of range, [httplimit.New] returns an
// [*httplimit.FieldError] of the rule that uses it.
//
// If a platform punishes callers that exceed a rate, the profile leaves a margin. A request is granted earlier than
// it arrives. A rate of 20 a second allows 20 requests at t and 20 more a second later; all 40 can reach the platform
// within one second if the first are delayed more than the second. So 20 a second becomes 20 in any 1.05 s, with a
// gap of 50 ms between two. This keeps the limit for requests whose delays differ by less than 50 ms: see
// [WithMargin] and [WithMinGap].
package platform
