// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// like checks that rules are those of a profile, but for what cannot be compared: functions and detectors.
func like(t *testing.T, want httplimit.Profile, got []httplimit.Rule) {
	t.Helper()
	plain := func(rules []httplimit.Rule) (list []string) {
		for _, r := range rules {
			line := fmt.Sprintf("%s %q %q %v %v %d detectors;", r.Name, r.Match.Hosts, r.Match.Patterns, r.OnePlatform, r.DryRun, len(r.Detectors))
			for _, l := range r.Limits {
				line += fmt.Sprintf(" %s %v %v %v %v %v", l.Name, l.Key == nil, l.Rate, l.Scope, l.Reopen, l.OutagePolicy)
			}
			list = append(list, line)
		}
		return list
	}
	require.Equal(t, plain(want.Rules), plain(got))
	require.Equal(t, len(want.Rules), len(got))
}

// TestProfiles: a profile of a file is that of the function of package platform, with the options of the same names.
func TestProfiles(t *testing.T) {
	redistest.NoServer(t)
	for file, want := range map[string]httplimit.Profile{
		"- dingtalk-robot":                        platform.DingTalkRobot(),
		"- name: dingtalk-robot":                  platform.DingTalkRobot(),
		"- {name: dingtalk, app_key: ding1}":      platform.DingTalk("ding1"),
		"- {name: wecom, corp_id: ww1}":           platform.WeCom("ww1"),
		"- {name: feishu, app_id: cli_1}":         platform.Feishu("cli_1"),
		"- {name: github, account: octocat}":      platform.GitHub("octocat"),
		"- {name: openai, account: acme}":         platform.OpenAI("acme"),
		"- {name: anthropic, account: acme}":      platform.Anthropic("acme"),
		"- {name: dashscope, account: acme}":      platform.DashScope("acme"),
		"- {name: dashscope, account: \"{a b}\"}": platform.DashScope("{a b}"),
		"- {name: dingtalk, app_key: a, egress: nat, margin: 100ms, outage_policy: open}": platform.DingTalk("a",
			platform.WithEgress("nat"), platform.WithMargin(100*time.Millisecond), platform.WithOutagePolicy(ratelimiter.FailOpen())),
		"- {name: openai, account: a, hosts: [api.deepseek.com], margin: 0s, outage_policy: {local_quota: 8}}": platform.OpenAI("a",
			platform.WithHosts("api.deepseek.com"), platform.WithMargin(0), platform.WithLocalQuota(8)),
		"- {name: github, account: a, outage_policy: closed}": platform.GitHub("a", platform.WithOutagePolicy(ratelimiter.FailClosed())),
		"- {name: dingtalk-robot, rates: [{scope: robot, permits: 0, interval: 60s}, {scope: robot, permits: 5, interval: 10s}], min_gaps: {robot: 1s, ip: 0s}}": platform.DingTalkRobot(
			platform.WithRate(platform.ScopeRobot, 0, time.Minute), platform.WithRate(platform.ScopeRobot, 5, 10*time.Second),
			platform.WithMinGap(platform.ScopeRobot, time.Second), platform.WithMinGap(platform.ScopeIP, 0)),
		"- {name: openai, account: a, rates: [{scope: account, rate: 500/min}]}": platform.OpenAI("a", platform.WithRate(platform.ScopeAccount, 500, time.Minute)),
	} {
		t.Run(file, func(t *testing.T) {
			like(t, want, redistest.Must(Parse([]byte("profiles:\n"+file+"\n")))(t))
		})
	}
	rules := redistest.Must(Parse([]byte("profiles: [{name: wecom, corp_id: a, dry_run: true}, dingtalk-robot]\nrules: [{name: mine, detectors: [http]}]")))(t)
	require.Equal(t, "mine", rules[0].Name, "its detectors are asked first")
	wecom, robot := platform.WeCom("a"), platform.DingTalkRobot()
	for i := range wecom.Rules {
		wecom.Rules[i].DryRun = true
	}
	like(t, wecom, rules[1:1+len(wecom.Rules)])
	like(t, robot, rules[1+len(wecom.Rules):])
}

// TestEveryProfileHasAName: each function of package platform that returns a profile is one that a file can name, once.
func TestEveryProfileHasAName(t *testing.T) {
	redistest.NoServer(t)
	var functions []string
	for _, line := range strings.Split(string(redistest.Must(os.ReadFile("../platform/testdata/api.txt"))(t)), "\n") {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "func "), "("); ok && strings.HasSuffix(rest, " httplimit.Profile") {
			functions = append(functions, strings.ToLower(name))
		}
	}
	var named []string
	for name := range profiles {
		named = append(named, strings.ReplaceAll(name, "-", ""))
	}
	require.Greater(t, len(functions), 5)
	require.ElementsMatch(t, functions, named)
}

// TestErrorsOfProfiles: what is wrong with a profile is named by its line and its field, in the words of the file.
func TestErrorsOfProfiles(t *testing.T) {
	redistest.NoServer(t)
	for _, c := range []struct {
		file  string
		line  int
		field string
		says  string
	}{
		{"- dingtalk-robto", 2, "profiles[0]", `profile "dingtalk-robto" is not known; there are anthropic, dashscope, dingtalk, dingtalk-robot, feishu, github, openai, wecom`},
		{"- {nam: openai}", 2, "profiles[0]", `profile "" is not known; there are anthropic,`},
		{"- name: 7", 2, "profiles[0].name", "it must be a string, not a number"},
		{"- 7", 2, "profiles[0]", "it must be a mapping, not a number"},
		{"- openai", 2, "profiles[0].account", "it is missing or empty; the requests of profile openai do not say whose they are"},
		{"- {name: dingtalk, app_key: \"\"}", 2, "profiles[0].app_key", "it is missing or empty"},
		{"- name: dingtalk\n  account: a", 3, "profiles[0].account", "unknown field; there are app_key, dry_run, egress, hosts, margin, min_gaps, name, outage_policy, rates"},
		{"- name: openai\n  account: a\n  egress: nat", 4, "profiles[0].egress", "unknown field; there are account, dry_run, hosts,"},
		{"- name: dingtalk-robot\n  egress: ''", 3, "profiles[0].egress", "it is empty"},
		{"- name: dingtalk-robot\n  hosts: []", 3, "profiles[0].hosts", "there is none"},
		{"- name: dingtalk-robot\n  hosts:\n  - a.b\n  - a.b:1", 5, "profiles[0].hosts[1]", "port"},
		{"- name: dingtalk-robot\n  margin: 5", 3, "profiles[0].margin", "5 has no unit"},
		{"- name: dingtalk-robot\n  margin: 1500us", 3, "profiles[0].margin", "1.5ms is no whole number of milliseconds"},
		{"- name: dingtalk-robot\n  outage_policy: maybe", 3, "profiles[0].outage_policy", "it is closed, open, or {local_quota: N}"},
		{"- name: dingtalk-robot\n  outage_policy: {local_quota: 0}", 3, "profiles[0].outage_policy", "1 or more"},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robots, permits: 5, interval: 1m}", 4, "profiles[0].rates[0].scope", `profile dingtalk-robot has no limit of the scope "robots"; there are ip, robot`},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robot, interval: 1m}", 4, "profiles[0].rates[0].permits", "it is missing or negative; 0 takes the limit away"},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robot, permits: 5}", 4, "profiles[0].rates[0].interval", "0s is shorter than a millisecond"},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robot, permits: 5000000000, interval: 1m}", 4, "profiles[0].rates[0].permits", "5000000000 is not in 1..4294967295"},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robot, permits: 0, interval: 2m}", 4, "profiles[0].rates[0]", "profile dingtalk-robot has no limit of robot in 2m0s that could be taken away"},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robot, permits: 5, interval: 1m}\n  - {scope: robot, permits: 6, interval: 60s}", 5, "profiles[0].rates[1]", "the limit of robot in 1m0s is there already"},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robot, rate: 5}", 4, "profiles[0].rates[0].rate", `the rate "5" is not in the form 10/s, 100/1m30s or 1000/day`},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robot, rate: 5/min, permits: 5}", 4, "profiles[0].rates[0].permits", "rate says it already"},
		{"- name: dingtalk-robot\n  rates:\n  - {scope: robot, rate: OVERALL 5/min gap 1s}", 4, "profiles[0].rates[0].rate", `the rate "OVERALL 5/min gap 1s" has more than permits and an interval, as 10/s has them`},
		{"- name: dingtalk-robot\n  min_gaps: {robots: 1s}", 3, "profiles[0].min_gaps.robots", "unknown field; there are ip, robot"},
		{"- name: dingtalk-robot\n  min_gaps: {robot: 2m}", 2, "profiles[0]", "limits[0].min_gap: 2m0s is longer than the interval 1m1s"},
		{"- dingtalk-robot\n- dingtalk-robot", 3, "profiles[1]", "an earlier profile of dingtalk is for oapi.dingtalk.com too; a request to it would take the permits of both"},
		{"- {name: dingtalk, app_key: a}\n- name: dingtalk-robot", 3, "profiles[1]", "an earlier profile of dingtalk is for"},
	} {
		rules, err := Parse([]byte("profiles:\n" + c.file + "\n"))
		require.Nil(t, rules, c.file)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, c.file)
		list := []error{err}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			list = joined.Unwrap()
		}
		require.Len(t, list, 1, "%s: %v", c.file, err)
		var e *Error
		require.True(t, errors.As(list[0], &e))
		require.Equal(t, []any{c.line, c.field}, []any{e.Line, e.Field}, "%s: %v", c.file, err)
		require.Contains(t, e.Problem, c.says, c.file)
	}
	_, err := Parse([]byte("profiles: []"))
	require.EqualError(t, err, "rulefile: line 1: rules: there are none, and no profiles")
	require.Len(t, redistest.Must(Parse([]byte("profiles: [{name: openai, account: a}, {name: openai, account: a, hosts: [api.deepseek.com]}]")))(t), 2)
}

// TestProfileAndRuleOfOneLimiter: a rule that repeats a limiter of a profile with another rate is found.
func TestProfileAndRuleOfOneLimiter(t *testing.T) {
	redistest.NoServer(t)
	_, err := Parse([]byte("profiles: [{name: openai, account: a}]\nrules:\n- match: {hosts: [api.openai.com]}\n  limits: [{name: \"{{openai}}:account:a:1m\", permits: 20, interval: 1s}]\n"))
	require.EqualError(t, err, `rulefile: line 1: profiles[0]: limits[0]: limiter "{{openai}}:account:a:1m" has the rate OVERALL 20/1s elsewhere and OVERALL 10000/1m1s here`)
}
