// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

var tableRow = regexp.MustCompile(`(?m)^\|(.*)\|$`)

func cells(row string) (list []string) {
	for cell := range strings.SplitSeq(strings.Trim(row, "|"), "|") {
		list = append(list, strings.TrimSpace(cell))
	}
	return list
}

// medians returns the medians of the tables of a run of the benchmarks by row, figure and contestant.
func medians(t *testing.T) map[[3]string]string {
	text := redistest.Must(os.ReadFile("docs/benchmarks-run.md"))(t)
	all, median := map[[3]string]string{}, regexp.MustCompile(`\*\*(.*?)\*\*`)
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		var head []string
		for _, row := range tableRow.FindAllString(body, -1) {
			list := cells(row)
			if list[0] == "" {
				head = list
			}
			for i := 1; i < len(list) && len(head) == len(list); i++ {
				if m := median.FindStringSubmatch(list[i]); m != nil {
					all[[3]string{title, head[i], strings.Trim(list[0], "*")}] = m[1]
				}
			}
		}
	}
	return all
}

// TestFigures checks the figures of docs/benchmarks.md against the run that docs/benchmarks-run.md has, and those of the READMEs
// against docs/benchmarks.md.
func TestFigures(t *testing.T) {
	run, all, checked := medians(t), pages(t), map[string]bool{}
	var head []string
	for _, row := range tableRow.FindAllString(all["docs/benchmarks.md"], -1) {
		list := cells(row)
		if list[0] == "row" {
			head = list
			continue
		}
		for i := 2; i < len(list) && !strings.HasPrefix(list[0], "--"); i++ {
			who := head[i]
			if who == "the faster one" {
				who = list[i+1]
			}
			if who == "" || list[i] == "" {
				continue
			}
			require.Equal(t, run[[3]string{list[0], list[1], who}], list[i], "docs/benchmarks.md: %s, %s, %s", list[0], list[1], who)
			checked[list[i]] = true
		}
	}
	require.Greater(t, len(checked), 40)
	figure := regexp.MustCompile(`(\d+\.\d+) ms|(\d+\.\d+ M) |\b(\d{2},\d{3}) ?(?:\.|个)`)
	for _, f := range []string{"README.md", "README.zh-CN.md"} {
		found := figure.FindAllStringSubmatch(all[f], -1)
		require.Len(t, found, 4, f)
		for _, m := range found {
			require.True(t, checked[m[1]+m[2]+m[3]], "%s: %s is no figure of docs/benchmarks.md", f, m[0])
		}
	}
}

// TestReclaimFigure checks what the pages, the doctor and its page say of Redisson's first call after a pause.
func TestReclaimFigure(t *testing.T) {
	measured := medians(t)[[3]string{"100,000 members have expired at once", "longest call, ms", "Redisson's script, plain go-redis"}]
	whole, _, _ := strings.Cut(measured, ".")
	texts, found := pages(t), 0
	for _, f := range []string{"internal/doctor/explain.go", "ratelimiterpage/text.go"} {
		text := redistest.Must(os.ReadFile(f))(t)
		texts[f] = string(text)
	}
	delete(texts, "docs/benchmarks-run.md")
	for f, text := range texts {
		for _, m := range regexp.MustCompile(`(\d+) ms (?:of blocked Redis )?(?:for|after) 100,000`).FindAllStringSubmatch(text, -1) {
			require.Equal(t, whole, m[1], f)
			found++
		}
	}
	require.GreaterOrEqual(t, found, 3)
}

// TestFiguresInText checks figures that stand in sentences, before the words that each row has, against the medians of the run.
func TestFiguresInText(t *testing.T) {
	all, run := pages(t), medians(t)
	goals := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (limit\.GCRA, [^|]*) \|[^|]*\|[^|*]*\*\*(.*?)\*\*`).FindAllStringSubmatch(all["docs/benchmarks-run.md"], -1) {
		goals[m[1]] = m[2]
	}
	ours, keys := "this library", "64 callers on 10,000 limiters"
	one, costs := "What it costs: 1 caller on one limiter, all granted", "limit/: what a call and a key cost Redis"
	for _, c := range []struct{ page, words, median string }{
		{"algorithms", " times as many requests with 64 callers and", goals["limit.GCRA, 64 callers on one key, against redis_rate"]},
		{"algorithms", " times as many with 512, and 305", goals["limit.GCRA, 512 callers on one key, against redis_rate"]},
		{"algorithms", " times as many when all of 64 are rejected", goals["limit.GCRA, 64 callers rejected, against redis_rate"]},
		{"algorithms", " calls of Redis a second ([benchmarks", goals["limit.GCRA, 64 callers rejected, script calls a second"]},
		{"algorithms", " times as many requests with 64 callers,", goals["limit.GCRA, 64 callers on 10,000 keys, against redis_rate"]},
		{"algorithms", " times as many with 512, and about", goals["limit.GCRA, 512 callers on 10,000 keys, against redis_rate"]},
		{"algorithms", " times as long by the median", goals["limit.GCRA, Redis time of a granted call, against redis_rate"]},
		{"production", " with 64 callers on two cores", run[[3]string{keys, "requests/s", ours}]},
		{"production", " calls for a request", run[[3]string{"What it costs: 512 callers on one limiter, all granted", "script calls a request", ours}]},
		{"production", " if every call is alone", run[[3]string{one, "bytes a permit", ours}]},
		{"production", " bytes each.", run[[3]string{costs, "bytes after one call", "limit.GCRA"}]},
		{"production", " µs, so one server", run[[3]string{costs, "Redis time of a granted call, µs", ours}]},
		{"choosing-a-limiter", " bytes a user", run[[3]string{costs, "bytes after one call", "limit.GCRA"}]},
		{"choosing-a-limiter", " µs | about 7", run[[3]string{costs, "Redis time of a granted call, µs", ours}]},
	} {
		m := regexp.MustCompile(`([\d.,]*\d)` + regexp.QuoteMeta(c.words)).FindStringSubmatch(strings.ReplaceAll(all["docs/"+c.page+".md"], "\n", " "))
		require.NotNil(t, m, c.words)
		median, err := strconv.ParseFloat(strings.ReplaceAll(c.median, ",", ""), 64)
		require.NoError(t, err, c.words)
		_, digits, _ := strings.Cut(m[1], ".")
		require.Equal(t, strings.ReplaceAll(m[1], ",", ""), fmt.Sprintf("%.*f", len(digits), median), c.words)
	}
}
