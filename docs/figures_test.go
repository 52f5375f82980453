// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// medians returns the medians of docs/benchmarks-run.txt, a run of the benchmarks, by row, contestant and unit.
func medians(t *testing.T) map[string]float64 {
	values, all := map[string][]float64{}, map[string]float64{}
	text := string(redistest.Must(os.ReadFile("docs/benchmarks-run.txt"))(t))
	for _, m := range regexp.MustCompile(`(?m)^BenchmarkRow/row=(\S+)/by=(\S+?)(?:-\d+)? \d+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := strings.Fields(m[3])
		for i := 0; i < len(words); i += 2 {
			key := m[1] + " " + m[2] + " " + words[i+1]
			values[key] = append(values[key], redistest.Must(strconv.ParseFloat(words[i], 64))(t))
		}
	}
	for key, list := range values {
		slices.Sort(list)
		all[key] = (list[(len(list)-1)/2] + list[len(list)/2]) / 2
	}
	require.Greater(t, len(all), 300)
	return all
}

// TestFigures checks what docs/benchmarks.md has of benchstat against the run.
func TestFigures(t *testing.T) {
	run, checked := medians(t), 0
	prefix := map[string]float64{"": 1, "n": 1e-9, "µ": 1e-6, "m": 1e-3, "k": 1e3}
	figure := regexp.MustCompile(`([\d.]+)([nµmk]?) ±`)
	for block := range strings.SplitSeq(pages(t)["docs/benchmarks.md"], "\n\n") {
		var head [][]string // contestants, then units
		for line := range strings.Lines(block) {
			if names := strings.Split(line, "│"); len(names) > 2 {
				head = append(head, names[1:len(names)-1])
				continue
			}
			found := figure.FindAllStringSubmatch(line, -1)
			if len(found) == 0 {
				continue
			}
			require.Len(t, found, len(head[0]), line)
			for i, m := range found {
				by, unit, scale := strings.TrimSpace(head[0][i]), strings.Fields(head[1][i])[0], 1.0
				if strings.Contains(unit, "sec") {
					unit, scale = strings.Replace(unit, "sec", "ns", 1), 1e-9
				}
				key := strings.Fields(line)[0] + " " + by + " " + unit
				require.Contains(t, run, key)
				require.InEpsilon(t, run[key]*scale, redistest.Must(strconv.ParseFloat(m[1], 64))(t)*prefix[m[2]], 1e-3, key)
				checked++
			}
		}
	}
	require.Greater(t, checked, 60)
}

// TestFiguresOfGrowth checks the table of what limiters take, and what follows from it, against the run.
func TestFiguresOfGrowth(t *testing.T) {
	run, page := medians(t), pages(t)["docs/benchmarks.md"]
	rows := map[string]string{"1": "1", "100": "100", "10,000": "10000", "1,000,000": "1000000"}
	for limiters, row := range rows {
		row = "grows-" + row + " ours "
		require.Contains(t, page, fmt.Sprintf("\n| %s | %.1f MB | %.1f MB |\n", limiters, run[row+"redis-B"]/1e6, run[row+"process-B"]/1e6))
	}
	each := func(unit string) float64 {
		return (run["grows-1000000 ours "+unit] - run["grows-1 ours "+unit]) / 999_999
	}
	require.Contains(t, page, fmt.Sprintf("takes %.0f bytes of Redis and %.0f bytes of a process", each("redis-B"), each("process-B")))
	require.Contains(t, page, fmt.Sprintf("take %.1f kB each", run["grows-10000 ours B/waiter"]/1e3))
	for _, processes := range []string{"-1", "-2", "", "-8"} {
		require.Contains(t, page, fmt.Sprintf("takes %.2f calls a request", run["processes"+processes+" ours calls/op"]), processes)
	}
	limit := 1e9 / run["limiters-64 ours cpu-ns/op"] * 0.8
	require.Contains(t, page, fmt.Sprintf("some %.0f,000 calls a second, and six are with %.0f0,000", limit/1e3, limit*6/1e4))
	require.Contains(t, page, fmt.Sprintf("gets %.1f million permits a second, with %.2f µs of Redis a permit", 1e3/run["callers-512 ours ns/op"], run["callers-512 ours cpu-ns/op"]/1e3))
}

// TestPictureOfGrowth checks that docs/grows.svg shows the run, or writes it with RRL_TEST_DOCS set: both axes are logarithmic.
func TestPictureOfGrowth(t *testing.T) {
	const file, left, bottom, decade = "docs/grows.svg", 60, 250, 70.0
	run := medians(t)
	at := func(limiters, bytes float64) (x, y float64) {
		return left + decade*math.Log10(limiters), bottom - decade*math.Log10(bytes/1e6)
	}
	var b strings.Builder
	fmt.Fprintln(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="560" height="290" font-family="'Liberation Sans',Arial,Helvetica,sans-serif" font-size="11" fill="#222">`)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="#fff"/><text x="10" y="18" font-weight="bold">memory by limiters</text>`)
	for i, label := range []string{"1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"} {
		x, _ := at(math.Pow10(i), 1e6)
		fmt.Fprintf(&b, "<path d=\"M%.0f,%dV40\" stroke=\"#ddd\"/><text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, bottom, x, bottom+16, label)
	}
	for i, label := range []string{"1 MB", "10 MB", "100 MB", "1 GB"} {
		_, y := at(1, 1e6*math.Pow10(i))
		fmt.Fprintf(&b, "<path d=\"M%d,%.0fH480\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", left, y, left-6, y+4, label)
	}
	for _, line := range []struct{ unit, name, color string }{{"redis-B", "Redis", "#c62828"}, {"process-B", "process", "#1565c0"}} {
		path, x, y := "M", 0.0, 0.0
		for _, n := range []int{1, 100, 10_000, 1_000_000} {
			x, y = at(float64(n), run[fmt.Sprintf("grows-%d ours %s", n, line.unit)])
			path += fmt.Sprintf(" %.1f,%.1f", x, y)
		}
		fmt.Fprintf(&b, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/><text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s</text>\n", path, line.color, x+8, y+4, line.color, line.name)
	}
	b.WriteString("</svg>\n")
	if os.Getenv("RRL_TEST_DOCS") != "" {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	require.Equal(t, b.String(), string(redistest.Must(os.ReadFile(file))(t)), "RRL_TEST_DOCS=write go test -run Growth ./docs writes it")
}

// TestReclaimFigure checks that the pages, the doctor and its page say the same of Redisson's first call after a pause, and that it
// is the median of the run.
func TestReclaimFigure(t *testing.T) {
	texts, found := pages(t), 0
	for _, f := range []string{"internal/ops/doctor/explanations.json", "ratelimiterpage/chinese.json"} {
		texts[f] = string(redistest.Must(os.ReadFile(f))(t))
	}
	want := fmt.Sprintf("%.0f", medians(t)["expired-100000 script longest-cpu-ns/call"]/1e6)
	for f, text := range texts {
		for _, m := range regexp.MustCompile(`(\d+) ms (?:of blocked Redis )?(?:for|after) 100,000|100,000 个成员为 (\d+) 毫秒`).FindAllStringSubmatch(text, -1) {
			require.Equal(t, want, m[1]+m[2], "%s: %s", f, m[0])
			found++
		}
	}
	require.GreaterOrEqual(t, found, 4)
}

// TestFiguresInText checks figures that stand in sentences, before the words that each row has, against the medians of the run and
// the table of costs in docs/algorithms.md.
func TestFiguresInText(t *testing.T) {
	all, run := pages(t), medians(t)
	cost := func(by string, column int) float64 {
		row := regexp.MustCompile(`(?m)^\| ` + by + ` \|(.*)\|$`).FindStringSubmatch(all["docs/algorithms.md"])
		require.NotNil(t, row, by)
		cell := strings.Split(row[1], "|")[column]
		if m := regexp.MustCompile(`\*\*(.*)\*\*`).FindStringSubmatch(cell); m != nil {
			cell = m[1]
		}
		return redistest.Must(strconv.ParseFloat(strings.TrimSpace(cell), 64))(t)
	}
	const grant, fresh, µs, ms = 0, 3, 1e-3, 1e-6
	rr := "RRateLimiter, by this library"
	for _, c := range []struct {
		pages, words string
		median       float64
	}{
		{"README.md README.zh-CN.md", " (?:ms, ours|毫秒，本库)", run["expired-100000 script longest-cpu-ns/call"] * ms},
		{"README.md README.zh-CN.md", " (?:ms\\.|毫秒。)", run["expired-100000 ours longest-cpu-ns/call"] * ms},
		{"README.md README.zh-CN.md", " (?:µs of Redis' CPU|微秒的 CPU)", run["callers-512 ours cpu-ns/op"] * µs},
		{"README.md README.zh-CN.md", " (?:µs with Redisson|微秒。)", run["callers-512 java-4.7.0 cpu-ns/op"] * µs},
		{"docs/algorithms.md docs/zh/algorithms.md", " (?:µs of the CPU of Redis with 64 callers and|微秒，512 个时)", run["limit-64 limit-gcra cpu-ns/op"] * µs},
		{"docs/algorithms.md docs/zh/algorithms.md", " (?:µs with 512,|微秒；redis_rate)", run["limit-512 limit-gcra cpu-ns/op"] * µs},
		{"docs/algorithms.md docs/zh/algorithms.md", ` (?:and [\d.]+ µs of redis_rate|和 [\d.]+ 微秒。)`, run["limit-64 redis_rate cpu-ns/op"] * µs},
		{"docs/algorithms.md docs/zh/algorithms.md", " (?:µs of redis_rate;|微秒。如果全部被拒绝)", run["limit-512 redis_rate cpu-ns/op"] * µs},
		{"docs/algorithms.md docs/zh/algorithms.md", "(?: times the CPU with 64 callers| 倍，512 个时)", run["limit-keys-64 limit-gcra cpu-ns/op"] / run["limit-keys-64 redis_rate cpu-ns/op"]},
		{"docs/algorithms.md docs/zh/algorithms.md", "(?: times with 512| 倍。 )", run["limit-keys-512 limit-gcra cpu-ns/op"] / run["limit-keys-512 redis_rate cpu-ns/op"]},
		{"docs/algorithms.md docs/zh/algorithms.md", "(?: times as long by the median| 倍。用)", cost("GCRA, TokenBucket, DebtBucket", grant) / cost(`go-redis/redis_rate \(GCRA\)`, grant)},
		{"docs/production.md docs/zh/production.md", " (?:calls for a request|次调用。如果)", run["callers-512 ours calls/op"]},
		{"docs/production.md docs/zh/production.md", "(?: if every call is alone|，合并得越多越少)", run["callers-1 ours redis-B/op"]},
		{"docs/production.md docs/zh/production.md", " (?:bytes each\\.|个字节。)", cost("GCRA, TokenBucket, DebtBucket", fresh)},
		{"docs/production.md docs/zh/production.md", " (?:µs of its CPU|微秒的 CPU)", run["limiters-64 ours cpu-ns/op"] * µs},
		{"docs/choosing-a-limiter.md", " bytes a user", cost("GCRA, TokenBucket, DebtBucket", fresh)},
		{"docs/choosing-a-limiter.md", " µs \\| about 7", cost(rr, grant)},
	} {
		for page := range strings.FieldsSeq(c.pages) {
			m := regexp.MustCompile(`([\d.,]*\d)` + c.words).FindStringSubmatch(strings.ReplaceAll(all[page], "\n", " "))
			require.NotNil(t, m, "%s: %s", page, c.words)
			_, digits, _ := strings.Cut(m[1], ".")
			require.Equal(t, fmt.Sprintf("%.*f", len(digits), c.median), strings.ReplaceAll(m[1], ",", ""), "%s: %s", page, c.words)
		}
	}
}

// TestCostsInChinese checks that the Chinese page has the figures of the table of costs.
func TestCostsInChinese(t *testing.T) {
	texts, figures := pages(t), regexp.MustCompile(`(?m)^\| .*?( \| [\d.,]+ / \*\*.*\|)$`)
	costs := func(f string) (rows []string) {
		for _, m := range figures.FindAllStringSubmatch(texts[f], -1) {
			rows = append(rows, m[1])
		}
		return rows
	}
	require.Len(t, costs("docs/algorithms.md"), 13)
	require.Equal(t, costs("docs/algorithms.md"), costs("docs/zh/algorithms.md"))
}

// TestNumbersOfTheCode checks numbers that the pages repeat against the code that they are taken from.
func TestNumbersOfTheCode(t *testing.T) {
	texts := pages(t)
	for _, f := range []string{"internal/ops/doctor/explanations.json", "ratelimiterpage/chinese.json", "limit/doc.go"} {
		texts[f] = string(redistest.Must(os.ReadFile(f))(t))
	}
	algorithms := 0
	for _, f := range redistest.Must(filepath.Glob("limit/*.go"))(t) {
		algorithms += len(regexp.MustCompile(`(?m)^func \(a [A-Z]\w+\) model\(`).FindAllString(string(redistest.Must(os.ReadFile(f))(t)), -1))
	}
	words := map[string]int{"ten": 10, "eleven": 11, "twelve": 12, "十": 10, "十一": 11, "十二": 12}
	script := string(redistest.Must(os.ReadFile("scripts/acquire.lua"))(t))
	reclaim := regexp.MustCompile(`expired < (\d+)`).FindStringSubmatch(script)
	require.NotNil(t, reclaim)
	counted := 0
	for f, text := range texts {
		for _, m := range regexp.MustCompile(`(?i)\b(ten|eleven|twelve) (?:other )?algorithms|(十[一二]?)种算法`).FindAllStringSubmatch(text, -1) {
			require.Equal(t, algorithms, words[strings.ToLower(m[1]+m[2])], "%s: %s", f, m[0])
			counted++
		}
		for _, m := range regexp.MustCompile(`a call reclaims (?:at most )?([\d,]+)|一次调用最多回收 ([\d,]+)`).FindAllStringSubmatch(text, -1) {
			require.Equal(t, reclaim[1], strings.ReplaceAll(m[1]+m[2], ",", ""), "%s: %s", f, m[0])
			counted++
		}
	}
	require.GreaterOrEqual(t, counted, 9)
}
