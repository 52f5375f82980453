// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// With writeDocs set, the tests below write the files with which they otherwise compare.
const writeDocs = "RRL_TEST_DOCS"

const algorithmsDoc = "../../../docs/algorithms.md"

// inOrder returns the comparisons of all cases, as the command makes them.
func inOrder(t *testing.T) (all []comparison) {
	by := compared(t)
	for _, name := range caseNames() {
		all = append(all, by[name])
	}
	return all
}

// TestDocsTables checks that the tables of docs/algorithms.md are those that the command prints now.
func TestDocsTables(t *testing.T) {
	text := redistest.Must(os.ReadFile(algorithmsDoc))(t)
	doc := string(text)
	for _, c := range inOrder(t) {
		var out bytes.Buffer
		v := &compareTable{out: &out}
		v.comparison(c)
		require.NoError(t, v.err)
		// On the page, the text before the table is the page's own, and a picture takes the place of the chart.
		_, table, _ := strings.Cut(out.String(), "\n\n")
		table, _, _ = strings.Cut(table, "\n\n")
		want := fmt.Sprintf("<!-- %s: begin -->\n```text\n%s\n```\n<!-- %s: end -->", c.name, strings.TrimSpace(table), c.name)
		block := regexp.MustCompile(fmt.Sprintf("(?s)<!-- %s: begin -->.*?<!-- %s: end -->", c.name, c.name))
		require.Len(t, block.FindAllString(doc, -1), 1, c.name)
		if os.Getenv(writeDocs) != "" {
			doc = block.ReplaceAllLiteralString(doc, want)
			continue
		}
		require.Equal(t, want, block.FindString(doc), "%s=write go test -run Docs ./cmd/rrl/rrl-compare writes it", writeDocs)
		require.Contains(t, doc, c.about, "the page tells the case")
	}
	if doc != string(text) {
		require.NoError(t, os.WriteFile(algorithmsDoc, []byte(doc), 0o600))
	}
}

// TestDocsPictures checks that the pictures in docs are exactly those that the command draws now.
func TestDocsPictures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("where products and sums are fused the last digits of coordinates can differ")
	}
	const dir = "../../../docs/algorithms"
	text := redistest.Must(os.ReadFile(algorithmsDoc))(t)
	all := inOrder(t)
	drawn := map[string]bool{}
	for _, k := range []compare{
		{by: byCase, svg: filepath.Join(dir, "case.svg"), cases: theCases(), who: theContestants()},
		{by: byLimiter, svg: filepath.Join(dir, "limiter.svg"), cases: theCases(), who: theContestants()},
	} {
		files := redistest.Must(k.draw(all))(t)
		require.Len(t, files, k.pictures())
		for _, f := range files {
			drawn[filepath.Base(f.name)] = true
			require.Less(t, len(f.data), 150_000, f.name)
			if os.Getenv(writeDocs) != "" {
				require.NoError(t, os.WriteFile(f.name, f.data, 0o600))
				continue
			}
			there := redistest.Must(os.ReadFile(f.name))(t)
			require.True(t, bytes.Equal(f.data, there), "%s is another; docs/algorithms.md says how to draw it", f.name)
			require.Contains(t, string(text), "](algorithms/"+filepath.Base(f.name)+")", "the page shows it")
		}
	}
	for _, name := range names(t, dir) {
		require.True(t, drawn[name], "%s is drawn by nobody", name)
	}
}

// TestDocsCommands checks that the commands that the page names draw its pictures.
func TestDocsCommands(t *testing.T) {
	text := redistest.Must(os.ReadFile(algorithmsDoc))(t)
	for _, command := range []string{
		"go run ./cmd/rrl/rrl-compare --svg docs/algorithms/case.svg\n",
		"go run ./cmd/rrl/rrl-compare --by limiter --svg docs/algorithms/limiter.svg\n",
	} {
		require.Contains(t, string(text), command)
	}
}
