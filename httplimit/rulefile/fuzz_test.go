// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The oracle of a file: plain structs, filled by the decoder of yaml. JSON is read as what encoding/json makes of it.
type (
	oracleFile struct {
		Rules    []oracleRule    `yaml:"rules,omitempty"`
		Profiles []oracleProfile `yaml:"profiles,omitempty"`
	}
	oracleProfile struct {
		Name         string              `yaml:"name,omitempty"`
		AppKey       string              `yaml:"app_key,omitempty"`
		CorpID       string              `yaml:"corp_id,omitempty"`
		AppID        string              `yaml:"app_id,omitempty"`
		Account      string              `yaml:"account,omitempty"`
		Hosts        []string            `yaml:"hosts,omitempty"`
		Egress       string              `yaml:"egress,omitempty"`
		Margin       string              `yaml:"margin,omitempty"`
		Rates        []oracleProfileRate `yaml:"rates,omitempty"`
		MinGaps      map[string]string   `yaml:"min_gaps,omitempty"`
		OutagePolicy any                 `yaml:"outage_policy,omitempty"`
		DryRun       bool                `yaml:"dry_run,omitempty"`
	}
	oracleProfileRate struct {
		Scope    string `yaml:"scope,omitempty"`
		Rate     string `yaml:"rate,omitempty"`
		Permits  *int64 `yaml:"permits,omitempty"` // 0 is not absent
		Interval string `yaml:"interval,omitempty"`
	}
	oracleRule struct {
		Name      string           `yaml:"name,omitempty"`
		Match     oracleMatch      `yaml:"match,omitempty"`
		Platform  bool             `yaml:"one_platform,omitempty"`
		DryRun    bool             `yaml:"dry_run,omitempty"`
		Limits    []oracleLimit    `yaml:"limits,omitempty"`
		Detectors []oracleDetector `yaml:"detectors,omitempty"`
	}
	oracleMatch struct {
		Patterns []string          `yaml:"patterns,omitempty"`
		Hosts    []string          `yaml:"hosts,omitempty"`
		Methods  []string          `yaml:"methods,omitempty"`
		Header   map[string]string `yaml:"header,omitempty"`
		Query    map[string]string `yaml:"query,omitempty"`
	}
	oracleLimit struct {
		Name         string `yaml:"name,omitempty"`
		Rate         string `yaml:"rate,omitempty"`
		Permits      int64  `yaml:"permits,omitempty"`
		Interval     string `yaml:"interval,omitempty"`
		KeepAlive    string `yaml:"keep_alive,omitempty"`
		MinGap       string `yaml:"min_gap,omitempty"`
		Reopen       string `yaml:"reopen,omitempty"`
		LeaveFree    int64  `yaml:"leave_free,omitempty"`
		LeaveFreeFor string `yaml:"leave_free_for,omitempty"`
		Type         string `yaml:"type,omitempty"`
		Weight       int64  `yaml:"weight,omitempty"`
		Scope        string `yaml:"scope,omitempty"`
		Settle       string `yaml:"settle,omitempty"`
		OutagePolicy any    `yaml:"outage_policy,omitempty"`
	}
)

// An oracleDetector is a name or a signature.
type oracleDetector struct {
	Name      string
	Signature *oracleSignature
}

type oracleSignature struct {
	Status   oracleStatus      `yaml:"status,omitempty"`
	Paths    []string          `yaml:"paths,omitempty"`
	Header   map[string]string `yaml:"header,omitempty"`
	JSON     map[string]string `yaml:"json,omitempty"`
	XML      map[string]string `yaml:"xml,omitempty"`
	Reason   string            `yaml:"reason,omitempty"`
	Scope    string            `yaml:"scope,omitempty"`
	Banned   bool              `yaml:"banned,omitempty"`
	Wait     string            `yaml:"wait,omitempty"`
	WaitFrom []string          `yaml:"wait_from,omitempty"`
	WaitBody []string          `yaml:"wait_from_body,omitempty"`
	MaxWait  string            `yaml:"max_wait,omitempty"`
}

func (p *oracleProfile) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&p.Name)
	}
	type fields oracleProfile
	return n.Decode((*fields)(p))
}

// An oracleStatus is one number or several.
type oracleStatus []int

func (s *oracleStatus) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode((*[]int)(s))
	}
	*s = make(oracleStatus, 1)
	return n.Decode(&(*s)[0])
}

func (d *oracleDetector) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode {
		return n.Decode(&d.Signature)
	}
	return n.Decode(&d.Name)
}

func (d oracleDetector) MarshalYAML() (any, error) {
	if d.Signature != nil {
		return d.Signature, nil
	}
	return d.Name, nil
}

// fuzzDetectors are those of the fuzzer, which can be told apart.
func fuzzDetectors() []Option {
	var opts []Option
	for name := range known() {
		opts = append(opts, WithDetector(name, &mine{name}))
	}
	return opts
}

// oracle is what a file should have said for these rules to come of it, in one spelling.
func oracle(t *testing.T, rules []httplimit.Rule) string {
	var f oracleFile
	duration := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	for _, r := range rules {
		o := oracleRule{Name: r.Name, Match: oracleMatch{r.Match.Patterns, r.Match.Hosts, r.Match.Methods, r.Match.Header, r.Match.Query},
			Platform: r.OnePlatform, DryRun: r.DryRun}
		for _, d := range r.Detectors {
			if s, ok := d.(httplimit.Signature); ok {
				o.Detectors = append(o.Detectors, oracleDetector{Signature: &oracleSignature{s.Status, s.Paths, s.Header, s.JSON, s.XML, s.Reason,
					string(s.Scope), s.Banned, duration(s.Wait), s.WaitFrom, s.WaitFromBody, duration(s.MaxWait)}})
				continue
			}
			o.Detectors = append(o.Detectors, oracleDetector{Name: d.(*mine).name})
		}
		for _, l := range r.Limits {
			p := oracleLimit{Name: l.Name, Permits: l.Rate.Permits, Interval: duration(l.Rate.Interval),
				KeepAlive: duration(l.Rate.KeepAlive), MinGap: duration(l.Rate.MinGap), Reopen: duration(l.Reopen),
				LeaveFree: l.LeaveFree, LeaveFreeFor: duration(l.LeaveFreeFor),
				Weight: l.Weight, Scope: string(l.Scope)}
			if l.Rate.Type == ratelimiter.PerClient {
				p.Type = "per_client"
			}
			if l.Settle != nil {
				p.Settle = "tokens"
			}
			if l.OutagePolicy != nil {
				p.OutagePolicy = l.OutagePolicy.String()
			}
			o.Limits = append(o.Limits, p)
		}
		f.Rules = append(f.Rules, o)
	}
	return f.normal(t)
}

// normal is the file in one spelling, without what is empty.
func (f oracleFile) normal(t *testing.T) string {
	for _, r := range f.Rules {
		for _, d := range r.Detectors {
			if s := d.Signature; s != nil {
				s.Wait, s.MaxWait = oneDuration(s.Wait), oneDuration(s.MaxWait)
			}
		}
		for j := range r.Limits {
			l := &r.Limits[j]
			if rate, err := ratelimiter.ParseRate(l.Rate); err == nil {
				l.Rate, l.Permits, l.Interval = "", rate.Permits, rate.Interval.String()
				l.Type = cmp.Or(l.Type, strings.ToLower(rate.Type.String()))
				l.KeepAlive, l.MinGap = cmp.Or(l.KeepAlive, rate.KeepAlive.String()), cmp.Or(l.MinGap, rate.MinGap.String())
			}
			for _, d := range []*string{&l.Interval, &l.KeepAlive, &l.MinGap, &l.Reopen, &l.LeaveFreeFor} {
				*d = oneDuration(*d)
			}
			if l.Type == "overall" {
				l.Type = ""
			}
			if share, ok := l.OutagePolicy.(map[string]any); ok {
				typ := ratelimiter.Overall
				if l.Type != "" {
					typ = ratelimiter.PerClient
				}
				parse := func(s string) time.Duration { d, _ := time.ParseDuration(s); return d }
				var n int
				_, _ = fmt.Sscan(fmt.Sprint(share["local_quota"]), &n)
				l.OutagePolicy = ratelimiter.LocalQuota(ratelimiter.Rate{Type: typ, Permits: l.Permits, Interval: parse(l.Interval),
					KeepAlive: parse(l.KeepAlive), MinGap: parse(l.MinGap)}, n).String()
			}
		}
	}
	return string(redistest.Must(yaml.Marshal(f))(t))
}

// oneDuration returns a duration in one spelling; "" for none.
func oneDuration(s string) string {
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return s
	case v == 0:
		return ""
	}
	return v.String()
}

// decode is the oracle's own reading of a file.
func decode(data []byte) (f oracleFile, err error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		var tree any
		if err = json.Unmarshal(data, &tree); err != nil {
			return f, err
		}
		if data, err = yaml.Marshal(tree); err != nil {
			return f, err
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err = d.Decode(&f); err == io.EOF {
		err = nil
	}
	return f, err
}

// FuzzParse: what is accepted is what plain decoders read in the file, a Transport takes it, its numbers
// are in their ranges, and the same rules written as JSON or as YAML are read the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte(`{"rules":[{"name":"\ud83d\ude00\/","limits":[{"name":"a","permits":20,"interval":"1s","outage_policy":{"local_quota":3}}]}]}`))
	f.Add([]byte("rules:\n- match: {hosts: [a.b], query: {a: \"*\"}}\n  detectors: [http, wecom]\n"))
	f.Add([]byte("rules:\n- detectors: [{status: 429, json: {a.b: '!c|d*'}, wait: 60s, wait_from: [X-A], wait_from_body: [a.*]}, {status: [503], xml: {E.C: x}, banned: true}]\n"))
	f.Add([]byte("rules:\n- match: {hosts: [a.b, c.d]}\n  one_platform: true\n  detectors: [wecom]\n"))
	f.Add([]byte("rules: [{limits: [{name: a, permits: 3, interval: 1m, settle: tokens}]}]"))
	f.Add([]byte("rules: [{limits: [{name: 'a{host}', permits: 3, interval: 1m, weight: 2, min_gap: 1ms}]}]"))
	f.Add([]byte("profiles:\n- dingtalk-robot\n- {name: openai, account: a, rates: [{scope: account, permits: 5, interval: 1m}], margin: 0s}\nrules:\n- detectors: [http]\n"))
	f.Add([]byte("rules: [{limits: [{name: a, type: per_client, rate: 100/d, min_gap: 1s, outage_policy: {local_quota: 2}}, {name: b, rate: PER_CLIENT 5/10s keep-alive 1h gap 1s}]}]"))
	f.Add([]byte("profiles: [{name: openai, account: a, rates: [{scope: account, rate: 5/min}]}]"))
	f.Add([]byte("profiles: [{name: feishu, app_id: a, min_gaps: {robot: 1s}, hosts: [a.b], outage_policy: {local_quota: 2}, dry_run: true}]"))
	f.Add([]byte("profiles: [{name: dingtalk, app_key: a, egress: b, rates: [{scope: robot, permits: 0, interval: 60s}], outage_policy: open}, {name: wecom, corp_id: c}]"))
	f.Add([]byte("rules:\n- limits:\n  - name: |\n      a\n    permits: 010\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Contains(data, []byte("mine")) {
			data = bytes.ReplaceAll(data, []byte("mine"), []byte("http"))
		}
		opts := fuzzDetectors()
		rules, err := Parse(data, opts...)
		if err != nil {
			require.Nil(t, rules)
			return
		}
		want, err := decode(data)
		require.NoError(t, err, "%q", data)
		asYAML := redistest.Must(yaml.Marshal(want))(t)
		require.NoError(t, httplimit.CheckRules(rules))
		profiles := want.Profiles
		want.Profiles = nil
		require.GreaterOrEqual(t, len(rules), len(want.Rules)+len(profiles))
		made := rules[len(want.Rules):]
		rules = rules[:len(want.Rules)]
		require.Equal(t, want.normal(t), oracle(t, rules), "%q", data)
		for _, r := range rules {
			require.NotZero(t, len(r.Limits)+len(r.Detectors))
			for _, l := range r.Limits {
				require.NotEmpty(t, l.Name)
				require.GreaterOrEqual(t, l.Weight, int64(0))
				if l.Rate != (ratelimiter.Rate{}) {
					require.Positive(t, l.Rate.Permits)
					require.GreaterOrEqual(t, l.Rate.Interval, time.Millisecond)
					require.GreaterOrEqual(t, l.Rate.MinGap, time.Duration(0))
				}
			}
		}
		var tree any
		require.NoError(t, yaml.Unmarshal(asYAML, &tree))
		asJSON := redistest.Must(json.Marshal(tree))(t)
		for _, text := range [][]byte{asJSON, asYAML} {
			if len(text) > maxSize || !json.Valid(asJSON) || bytes.Contains(asJSON, []byte(`\ufffd`)) {
				return // what is no UTF-8 cannot be written as JSON
			}
			same, err := Parse(text, opts...)
			require.NoError(t, err, "%s", text)
			require.Equal(t, oracle(t, rules), oracle(t, same[:len(rules)]), "%s", text)
			require.Len(t, same, len(rules)+len(made), "%s", text)
			for i, r := range same[len(rules):] {
				require.Equal(t, made[i].Name, r.Name)
				require.Equal(t, made[i].Match.Hosts, r.Match.Hosts)
				require.Equal(t, made[i].DryRun, r.DryRun)
				for j, l := range r.Limits {
					require.Equal(t, []any{made[i].Limits[j].Name, made[i].Limits[j].Rate, made[i].Limits[j].OutagePolicy}, []any{l.Name, l.Rate, l.OutagePolicy})
				}
			}
		}
	})
}
