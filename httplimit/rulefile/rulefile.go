// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/http/textfile"
)

// maxSize is the largest size of a file in bytes.
const maxSize = 1 << 20

// An Error is one problem of a file: errors.Is(err, [ratelimiter.ErrInvalidArgument]) holds for it.
type Error struct {
	// Line is the number of the line, from 1, or 0 if it is not known.
	Line int
	// Field is the path of the field, such as rules[0].limits[1].interval. It is empty if the file is not YAML or
	// JSON.
	Field string
	// Problem describes the problem.
	Problem string
}

// Error returns the line, the field and the problem.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("rulefile: ")
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	return b.String() + e.Problem
}

// Is reports whether target is ratelimiter.ErrInvalidArgument.
func (e *Error) Is(target error) bool { return target == ratelimiter.ErrInvalidArgument }

// An Option changes how a file is read.
type Option func(*config)

type config struct {
	detectors map[string]httplimit.Detector
	problems  []error
}

// WithDetector makes a detector available to the file under a name. It replaces a known detector of that name. Parse
// returns an [*Error] if the name is empty, or the detector is one that httplimit.New rejects. The default is the
// names that [Parse] lists.
func WithDetector(name string, d httplimit.Detector) Option {
	return func(c *config) {
		if name == "" {
			c.problems = append(c.problems, &Error{Problem: "WithDetector: the name is empty"})
		}
		if err := httplimit.CheckRules([]httplimit.Rule{{Detectors: []httplimit.Detector{d}}}); err != nil {
			c.problems = append(c.problems, &Error{Problem: fmt.Sprintf("WithDetector(%q): %v", name, err)})
		}
		c.detectors[name] = d
	}
}

// Parse reads rules from the content of a file of up to 1 MiB, in UTF-8, or in UTF-16 with a byte order mark. A file that begins with { is JSON; any
// other is YAML without anchors and tags, and with a single document. The file is one mapping with the lists
// rules and profiles, of which one may be absent. Each rule has
//
//   - name
//   - match: patterns, hosts and methods, which are lists; header and query, which map a name to its
//     value, "*" for any. See [httplimit.Match].
//   - one_platform: true, if the hosts of match belong to one platform. See [httplimit.Rule].
//   - dry_run: true, for a rule that delays no request. See [httplimit.Rule].
//   - limits: a list of name, with the placeholders of [httplimit.Limit]; rate, keep_alive, min_gap and type (overall or
//     per_client), which are its ratelimiter.Rate, and are all absent if it is set elsewhere; weight, scope, reopen,
//     leave_free and leave_free_for; settle, which is tokens for [platform.Tokens]; outage_policy, which is closed, open, or
//     {local_quota: N} for N processes
//   - detectors: a list of names: dingtalk-old, dingtalk-new, dingtalk-robot, dingtalk-ban, wecom, wechat,
//     feishu, github, openai, anthropic, dashscope, s3, tencent, http, and those of [WithDetector]; or of mappings
//     with the fields of [httplimit.Signature]: status, a number or a list; paths; header, json and xml, which map a
//     name or a path to a pattern; reason, scope, banned, wait, wait_from, wait_from_body and max_wait
//   - rejection: anthropic, discord, feishu, github, gitlab, openai, slack or telegram, the platform whose form the
//     responses to rejected requests have. See [httplimit.Rule].
//
// Each of the profiles is a profile of package platform, which names the limiters: a name alone, or a mapping of
//
//   - name: dingtalk, dingtalk-robot, wecom, feishu, github, openai, anthropic or dashscope
//   - the argument of its function, unless it is dingtalk-robot: app_key of dingtalk, corp_id of wecom, app_id of
//     feishu, account of the others
//   - hosts, margin and outage_policy; egress, of dingtalk and dingtalk-robot: see [platform.WithHosts] and so on
//   - rates: a list of scope and rate, each of which is a [platform.WithRate]; permits: 0 with the interval of a limit in place
//     of rate takes that limit away; min_gaps, which maps a scope to a duration: see [platform.WithMinGap]
//   - dry_run: true, for a profile that delays no request
//
// A request takes permits of all rules and all profiles that match it, of all or of none. So no rule should repeat a limit
// of a profile: it would be counted by another limiter. The rules come first in what Parse returns, so their detectors are asked
// first. Two profiles of one platform for the same host are an error. Options of a profile that are functions, and
// those of [platform.WithAPI] and [platform.WithPenalty], are for programs.
//
// A rate is written as [ratelimiter.ParseRate] takes it: 10/s, 100/1m30s, 1000/day, or with all its parts, as in "PER_CLIENT
// 5/10s keep-alive 1h gap 1s". In place of rate, permits and interval may stand: a number and a duration. Durations are
// written like 20s, 1m30s or 100ms.
//
// Parse returns one or more [*Error] values, joined, in the order of their lines. It calls the options before it reads data,
// and returns what is wrong with them alone.
func Parse(data []byte, opts ...Option) ([]httplimit.Rule, error) {
	c := config{detectors: known()}
	for _, o := range opts {
		if o == nil {
			return nil, &Error{Problem: "an Option of Parse is nil"}
		}
		o(&c)
	}
	if len(c.problems) > 0 {
		return nil, errors.Join(c.problems...)
	}
	if len(data) > maxSize {
		return nil, &Error{Problem: fmt.Sprintf("it is longer than %d bytes", maxSize)}
	}
	data, err := textfile.UTF8(data)
	if err != nil {
		return nil, &Error{Problem: err.Error()}
	}
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) { // package json would make it U+FFFD
			return nil, &Error{Line: i + 1, Problem: "it is not in UTF-8"}
		}
	}
	parse := parseYAML
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		parse = parseJSON
	}
	root, err := parse(data)
	if err != nil {
		return nil, err
	}
	r := &reader{detectors: c.detectors, lines: map[string]int{}}
	rules := r.file(root)
	all := slices.Concat(rules, r.profileRules)
	r.check(all, len(rules))
	if len(r.problems) > 0 {
		return nil, r.err()
	}
	return all, nil
}

// check has httplimit check the rules, of which the first ones are the file's own and the others those of profiles, and finds the
// lines of the problems. What is found in a part that could not be read is left out: it would follow from that.
func (r *reader) check(rules []httplimit.Rule, own int) {
	var unread []string
	for _, p := range r.problems {
		unread = append(unread, p.Field[:max(strings.LastIndexAny(p.Field, ".["), 0)])
	}
	err := httplimit.CheckRules(rules)
	if err == nil {
		return
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, err := range list {
		var f *httplimit.FieldError
		if !errors.As(err, &f) {
			r.problems = append(r.problems, &Error{Problem: err.Error()})
			continue
		}
		e := r.inFile(*f, own)
		e.Line = r.line(e.Field)
		if slices.ContainsFunc(unread, func(part string) bool { return within(e.Field, part) || within(part, e.Field) }) ||
			slices.ContainsFunc(r.problems, func(p *Error) bool { return *p == e }) { // of several rules of one profile
			continue
		}
		r.problems = append(r.problems, &e)
	}
}

// within reports whether a field is a part, or in it. All are in the part "".
func within(field, part string) bool {
	rest, ok := strings.CutPrefix(field, part)
	return ok && (part == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// line returns the line of a field, or of the closest value around it.
func (r *reader) line(field string) int {
	for field != "" {
		if line, ok := r.lines[field]; ok {
			return line
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return 0
}

func known() map[string]httplimit.Detector { return maps.Clone(detectors) }

var detectors = map[string]httplimit.Detector{
	"dingtalk-old":   platform.DingTalkOldDetector(),
	"dingtalk-new":   platform.DingTalkNewDetector(),
	"dingtalk-robot": platform.DingTalkRobotDetector(),
	"dingtalk-ban":   platform.DingTalkBanDetector(),
	"wecom":          platform.WeComDetector(),
	"wechat":         platform.WeChatDetector(),
	"feishu":         platform.FeishuDetector(),
	"github":         platform.GitHubDetector(),
	"openai":         platform.OpenAIDetector(),
	"anthropic":      platform.AnthropicDetector(),
	"dashscope":      platform.DashScopeDetector(),
	"s3":             platform.S3Detector(),
	"tencent":        platform.TencentDetector(),
	"http":           httplimit.HTTPDetector(),
}
