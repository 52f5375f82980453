// SPDX-License-Identifier: Apache-2.0

// Package platform has what some platforms ask of their callers, for an [httplimit.Transport]: profiles, which
// are their published limits as rules, and detectors, which tell from an answer that the platform throttled the
// request. The platforms are DingTalk, WeCom, WeChat, Feishu (Lark) and GitHub.
//
//	transport, err := httplimit.New(client, httplimit.WithProfile(platform.DingTalk("dingappkey",
//		platform.WithRate(platform.ScopeAppAPI, 60, time.Second))))
//
// [DingTalk], [DingTalkRobot], [WeCom], [Feishu] and [GitHub] make a profile; its rules may be changed and added
// to. What is out of the range of an [Option] is found by [httplimit.New], as an [*httplimit.FieldError] of the
// rule that it got into.
//
// A rate that the platform punishes leaves a margin. A grant is not an arrival: 20 requests at t and 20
// more a second later, as 20 a second allows, can reach the platform within one second when the first
// are delayed on their way by more than the second. So 20 a second becomes 20 in any 1.05 s, a gap of
// 50 ms between two, and is kept for requests whose delays differ by less than 50 ms: see [WithMargin]
// and [WithMinGap].
package platform
