// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"regexp"
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
