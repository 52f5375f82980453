// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestChineseFindings checks that docs/zh/findings.md says of each check what the page says.
func TestChineseFindings(t *testing.T) {
	text := string(redistest.Must(os.ReadFile("../docs/zh/findings.md"))(t))
	rows := regexp.MustCompile("(?m)^\\| <a id=\"([a-z-]+)\"></a>`[a-z-]+` \\| (.*) \\| (.*) \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(text, -1)
	require.Len(t, rows, len(doctor.Checks()))
	for _, row := range rows {
		e, ok := chinese().Checks[row[1]]
		require.True(t, ok, row[1])
		require.Equal(t, []string{e.Means, e.Java, e.Go}, row[2:5], row[1])
	}
}

// sentence finds English beside what is quoted and the commands: three words in a row.
var (
	sentence   = regexp.MustCompile(`[A-Za-z']+ [a-z']+ [a-z']+`)
	noSentence = regexp.MustCompile(`"[^"]*"|(rrl|redis-cli) [^；，、\p{Han}]*`)
)

// textsOfTheDoctor looks in the source of the doctor for all that it says. What acl and drift find is of rrl doctor alone.
func textsOfTheDoctor(t *testing.T) map[string]bool {
	texts := map[string]bool{"wait": true, doctor.NoCommand: true}
	note := func(x ast.Expr) {
		if lit, ok := x.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text := redistest.Must(strconv.Unquote(lit.Value))(t)
			if strings.Contains(text, " ") && regexp.MustCompile("[a-z]{2}").MatchString(text) && !strings.HasPrefix(text, "redis-cli --cluster check") {
				texts[text] = true
			}
		}
	}
	for _, name := range redistest.Must(filepath.Glob("../internal/ops/doctor/*.go"))(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "access.go") {
			continue
		}
		ast.Inspect(redistest.Must(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "of" {
					note(n.Args[4])
				} else if f, ok := n.Fun.(*ast.Ident); ok && strings.Contains("say word add advise", f.Name) {
					for _, x := range n.Args {
						note(x)
					}
				} else if ok && f.Name == "Counted" {
					texts["%d "+strings.Trim(n.Args[1].(*ast.BasicLit).Value, `"`)] = true
				}
			case *ast.CompositeLit: // the table of what is found of servers
				if _, ok := n.Type.(*ast.Ident); !ok && strings.HasSuffix(name, "server.go") {
					for _, x := range n.Elts {
						note(x)
					}
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if f, ok := to.(*ast.SelectorExpr); ok && strings.Contains("Means Java Go", f.Sel.Name) {
						note(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	return texts
}

// TestSkippedInChinese shows what could not be looked at, and why, as far as it is the doctor that says so. It looks in the
// source for each check that may not be possible.
func TestSkippedInChinese(t *testing.T) {
	source := ""
	for _, name := range append(redistest.Must(filepath.Glob("../internal/ops/doctor/*.go"))(t), redistest.Must(filepath.Glob("../internal/ops/survey/*.go"))(t)...) {
		source += string(redistest.Must(os.ReadFile(name))(t))
	}
	for _, m := range regexp.MustCompile(`(?:skip\(|Skip\{Check: )"([a-z-]+)"`).FindAllStringSubmatch(source, -1) {
		require.NotEmpty(t, chinese().Checks[m[1]].Name, m[1])
	}
	h := newSite(t, redistest.Client(t)).Handler
	for format, c := range map[string]struct{ why, want string }{
		"looked at only the first %s": {"looked at only the first 3 limiters", "只检查了前 3 个限流器"},
		"the set of %d members is too large, or grows faster than it can be read": {
			"the set of 7 members is too large, or grows faster than it can be read", "集合有 7 个成员，过大，或增长太快来不及读取"},
		"the %d members were changed while they were read, for %v: with the permits left they may be from %d below to %d above the rate": {
			"the 7 members were changed while they were read, for 3ms: with the permits left they may be from 2 below to 1 above the rate",
			"读取用了 3ms，期间这 7 个成员有变动：它们与剩余许可之和比速率最多少 2 个，最多多 1 个"},
		"the keys of %q change their types faster than they can be read": {
			`the keys of "a" change their types faster than they can be read`, `"a" 的键的类型变化太快，来不及读取`},
		"cannot read %s; the first is %w": {`cannot read 2 names; the first is "a": EOF`, `有 2 个名字无法读取；第一个是 "a": EOF`},
		"no reply within %v":              {"no reply within 1.5s", "1.5s 内没有响应"},
		"shards of the ring are down":     {"shards of the ring are down: 1 of 3", "环的 3 个分片中有 1 个停机"},
		"func oneLine(err error) string":  {"NOPERM no", "NOPERM no"},
	} {
		require.Contains(t, source, format)
		r := &doctor.Report{Skipped: []doctor.Skip{{Check: "find", Limiter: "a", Node: "n:1", Why: c.why}}}
		require.Equal(t, []string{"查找 a n:1: " + c.want}, h.reportOf(&pageView{Lang: "zh"}, r, false).Skipped)
		require.Equal(t, []string{"find a n:1: " + c.why}, h.reportOf(&pageView{Lang: "en"}, r, false).Skipped)
	}
}

// TestErrorsInChinese looks in the source for each error of somebody's input, and for those of what is in Redis.
func TestErrorsInChinese(t *testing.T) {
	texts := []string{`wrong type: "{a…}:permits" is a string, not a zset`, `wrong type: "a" is not a hash`, `ratelimiter: malformed limiter: type is "7"`,
		`ratelimiter: malformed limiter: a member of 2 bytes (7878) has no known layout`, `ratelimiter: not initialized: there is no limiter "a", and nothing that it has left behind`,
		`ratelimiter: not initialized: there is no limiter "a", and what has keys of that name looks like none of ours`,
		`ratelimiter: not initialized: there is no limiter "a", and its keys are those of the limiter "{a}"`,
		`it looks like none of ours: nothing in "a", "{a}:value" shows that it is a limiter's; nothing was changed`, `ratelimiter: permits exceed rate: asked for 7 permits of "a", whose rate is 5`}
	source := string(redistest.Must(os.ReadFile("change.go"))(t))
	for _, m := range regexp.MustCompile(`formError\{(?:errors\.New|fmt\.Errorf)\("([^"]+)"`).FindAllStringSubmatch(source, -1) {
		texts = append(texts, strings.ReplaceAll(m[1], "%q", `"x"`))
	}
	require.Greater(t, len(texts), 14)
	for _, text := range texts {
		zh := (&pageView{Lang: "zh"}).t(text)
		require.NotRegexp(t, sentence, noSentence.ReplaceAllString(zh, ""), text)
		require.Equal(t, strings.Count(text, `"`), strings.Count(zh, `"`), "the names stay: %s", text)
		require.Equal(t, text, (&pageView{Lang: "en"}).t(text))
	}
	const redis = "LOADING Redis is loading the dataset in memory"
	require.Equal(t, redis, (&pageView{Lang: "zh"}).t(redis), "what Redis says stays")
}

// TestFindingsInChinese has limiters with findings of many checks, whose values are in Chinese, too.
func TestFindingsInChinese(t *testing.T) {
	rdb, ctx := redistest.Client(t), t.Context()
	s, base := newSite(t, rdb), redistest.Key(t)
	do := s.do
	for check, c := range map[string]struct {
		broken func(name, value, permits string)
		want   string
	}{
		"surplus":    {func(_, value, _ string) { do("set", value, 500) }, "剩余 500 个，集合中 2 个，共 502 个许可，比速率 10 多 492 个"},
		"stuck":      {func(_, value, permits string) { do("set", value, 0); do("del", permits) }, "10 个许可中剩余 0 个，没有在用的"},
		"value":      {func(_, value, _ string) { do("del", value) }, "没有剩余许可的值，而 10 个许可中有 2 个在用"},
		"malformed":  {func(name, _, _ string) { do("hset", name, "rate", "x") }, `rate 的值是 "x"`},
		"remains":    {func(name, _, _ string) { do("del", name) }, "留下的键有 1 个成员，永不过期"},
		"wrong-type": {func(_, _, permits string) { do("del", permits); do("lpush", permits, 1) }, "的类型是 list，应为 zset"},
		"layouts":    {func(_, _, permits string) { do("zadd", permits, 1, "x") }, "没有任何已知版本会写，1 个"},
		"other-type": {func(name, _, _ string) { do("hset", name, "type", 1) }, "却留有 OVERALL 的键，其中有 1 个成员"},
		"writers":    {func(string, string, string) {}, "1 个成员由 Go 写入；哈希由 Redisson 3.38.0 及以后或 Go 写入"},
	} {
		name := base + check
		limiter(t, rdb, name, ratelimiter.Rate{Permits: 10, Interval: time.Hour}, 2)
		c.broken(name, "{"+name+"}:value", "{"+name+"}:permits")
		r := redistest.Must(s.doctorOf().Limiter(ctx, name))(t)
		var found []string
		for _, f := range r.Findings {
			x := s.finding(&pageView{Lang: "zh"}, f)
			if f.Check == check {
				found = append(found, x.Found)
			}
			for _, text := range []string{x.Found, x.Fix, x.Means, x.Java, x.Go} {
				require.NotRegexp(t, sentence, noSentence.ReplaceAllString(text, ""), text)
				require.NotContains(t, text, "%!")
			}
			require.Equal(t, survey.Visible(f.Found), s.finding(&pageView{Lang: "en"}, f).Found)
		}
		require.Len(t, found, 1, check)
		require.Contains(t, found[0], c.want)
	}
}

// textsOfThePage looks for them in the templates and in the program.
func textsOfThePage(t *testing.T) map[string]bool {
	used := map[string]bool{}
	find := func(glob string, patterns ...string) {
		names := redistest.Must(filepath.Glob(glob))(t)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text := redistest.Must(os.ReadFile(name))(t)
			for _, p := range patterns {
				for _, m := range regexp.MustCompile(p).FindAllStringSubmatch(string(text), -1) {
					used[m[1]] = true
				}
			}
		}
	}
	find("templates/*.html", `[({]t "([^"]+)"`)
	find("*.go", `\bt\("([^"]+)"`)
	find("../internal/ops/view/*.go", `\b(?:say|Word)\("([^"]+)"`)
	used[survey.Hidden.String()] = true
	for _, role := range []string{"hash", "permits left", "permits in use", "the permits in use", "the cool-down", "the least gap between permits", "none",
		doctor.Info.String(), doctor.Warning.String(), doctor.Critical.String(), survey.FastWriter, survey.Reserved} {
		used[role] = true
	}
	for _, x := range tabs {
		used[x.title] = true
	}
	for _, c := range columns {
		used[c.title] = true
	}
	for _, a := range actions {
		used[a.title] = true
	}
	for _, m := range survey.Marks {
		used[m] = true
	}
	for y := wire.LayoutUnknown; y <= wire.LayoutOurs; y++ {
		if y.Writers() != "Go" {
			used[y.Writers()] = true
		}
	}
	return used
}

// TestChineseIsWhole checks that each text of the page and of the doctor has a Chinese one with the same values, that those of the doctor
// are no English, and that none is left whose English is gone.
func TestChineseIsWhole(t *testing.T) {
	page, doctors := textsOfThePage(t), textsOfTheDoctor(t)
	verb := regexp.MustCompile(`%(?:\[\d+\])?(?:04)?[sdqvx]`)
	for i, texts := range []map[string]bool{page, doctors} {
		require.Greater(t, len(texts), 100)
		for text := range texts {
			zh, ok := chinese().Texts[text]
			require.True(t, ok, "there is no Chinese for %q", text)
			require.Len(t, verb.FindAllString(zh, -1), len(verb.FindAllString(text, -1)), text)
			if i == 1 {
				require.NotRegexp(t, sentence, noSentence.ReplaceAllString(zh, ""))
			}
		}
	}
	for text := range chinese().Texts {
		if !page[text] && !doctors[text] && text != ", " && text != "; " {
			t.Errorf("nobody says %q", text)
		}
	}
	for _, check := range doctor.Checks() {
		e := chinese().Checks[check]
		for _, text := range []string{e.Name, e.Means, e.Java, e.Go} {
			require.NotEmpty(t, text, check)
		}
	}
}
