// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// With writeDocs set, the tests below write what they otherwise compare.
const writeDocs = "RRL_TEST_DOCS"

const page, chinese, drawings = "../../docs/algorithms.md", "../../docs/zh/algorithms.md", "../../docs/algorithms"

// TestDocsTables checks that the tables of docs/algorithms.md, and of the same page in Chinese, are those that the example prints now.
func TestDocsTables(t *testing.T) {
	outcomes := compared(t)
	for _, p := range []string{page, chinese} {
		text := string(redistest.Must(os.ReadFile(p))(t))
		doc := text
		for i, all := range outcomes {
			name := cases[i].name
			want := fmt.Sprintf("<!-- %s: begin -->\n```text\n%s```\n<!-- %s: end -->", name, table(all), name)
			block := regexp.MustCompile(fmt.Sprintf("(?s)<!-- %s: begin -->.*?<!-- %s: end -->", name, name))
			require.Len(t, block.FindAllString(doc, -1), 1, name)
			if p == page {
				require.Contains(t, doc, cases[i].about, "the page tells the case")
			}
			if os.Getenv(writeDocs) == "" {
				require.Equal(t, want, block.FindString(doc), "%s=write go test -run Docs ./examples/compare writes it", writeDocs)
			}
			doc = block.ReplaceAllLiteralString(doc, want)
		}
		if doc != text {
			require.NoError(t, os.WriteFile(p, []byte(doc), 0o600))
		}
	}
}

// TestDocsPictures checks that the pictures of that page are those of the example's outcomes.
func TestDocsPictures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("where products and sums are fused the last digits of coordinates can differ")
	}
	text := string(redistest.Must(os.ReadFile(page))(t))
	drawn := pictures(compared(t))
	for name, picture := range drawn {
		require.Contains(t, text, "](algorithms/"+name+")", "the page shows it")
		if os.Getenv(writeDocs) != "" {
			require.NoError(t, os.WriteFile(filepath.Join(drawings, name), picture, 0o600))
			continue
		}
		there := redistest.Must(os.ReadFile(filepath.Join(drawings, name)))(t)
		require.True(t, bytes.Equal(picture, there), "%s=write go test -run Docs ./examples/compare draws %s", writeDocs, name)
	}
	for _, f := range redistest.Must(os.ReadDir(drawings))(t) {
		require.Contains(t, drawn, f.Name(), "drawn by nobody")
	}
}

const (
	bin            = 100 * time.Millisecond
	columns        = 3
	width, height  = 236, 140 // of a cell
	across, up     = 200, 44  // of a plot
	blue, grey     = "#1f6fb4", "#999"
	lightBlue, red = "#a6cbe8", "#c62828"
)

// pictures returns one picture of each case and one of each limiter, by their file names.
func pictures(all [][]outcome) map[string][]byte {
	files, cells := map[string][]byte{}, map[string]string{}
	for i, t := range cases {
		asked := outcome{traffic: t, limiter: "what is asked", grants: t.arrivals()}
		perBin, windows := asked.bins()
		top := [2]int64{slices.Max(perBin), max(slices.Max(windows), t.rate.Permits)} // of both plots, for all limiters
		ofCase := ""
		for j, o := range append([]outcome{asked}, all[i]...) {
			ofCase += o.cell(o.limiter, j, top)
			cells[o.limiter] += o.cell(fmt.Sprintf("%s: %d/%v", t.name, t.rate.Permits, t.rate.Interval), i, top)
		}
		files["case-"+t.name+".svg"] = picture(fmt.Sprintf("%s: a limit of %d/%v", t.name, t.rate.Permits, t.rate.Interval), len(all[i])+1, ofCase)
	}
	for _, o := range all[0] {
		files["limiter-"+strings.ToLower(o.limiter)+".svg"] = picture(o.limiter, len(cases), cells[o.limiter])
	}
	return files
}

func picture(title string, n int, cells string) []byte {
	high := 40 + (n+columns-1)/columns*height
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="'Liberation Sans',Arial,Helvetica,sans-serif" font-size="8" fill="#222">
<rect width="100%%" height="100%%" fill="#fff"/><text x="10" y="16" font-size="12" font-weight="bold">%s</text>
<text x="10" y="30">above: admitted per %v (<tspan fill="%s">asked</tspan>); below: most in a window of the interval that ends here, <tspan fill="%s">above the limit in red</tspan>; dashed: the limit, in the upper plot its average</text>
%s</svg>
`, columns*width+10, high, title, bin, grey, red, cells)
}

// cell returns the picture of one limiter at one traffic: what it admitted in each bin, and below it what the windows held.
func (o *outcome) cell(title string, n int, top [2]int64) string {
	perBin, windows := o.bins()
	upper, lower, limit, said := blue, lightBlue, o.rate.Permits, fmt.Sprintf("%d of %d admitted; most in %v: %d", o.admitted, o.admitted+o.rejected, o.rate.Interval, o.worst)
	colour := "#222"
	switch {
	case o.bound == 0: // what is asked
		upper, lower, limit, said = grey, "#ddd", math.MaxInt64, fmt.Sprintf("%d requests", len(o.grants))
	case o.worst > limit:
		colour = red
	}
	return fmt.Sprintf(`<g transform="translate(%d,%d)"><text y="8" fill="%s"><tspan font-size="9" font-weight="bold">%s</tspan><tspan x="0" dy="10">%s</tspan></text>
%s%s<text x="22" y="129">0</text><text x="%d" y="129" text-anchor="end">%.1f s</text></g>
`, 10+n%columns*width, 44+n/columns*height, colour, title, said,
		plot(24, top[0], float64(o.rate.Permits)*bin.Seconds()/o.rate.Interval.Seconds(), area(perBin, top[0], math.MaxInt64, upper)),
		plot(74, top[1], float64(o.rate.Permits), area(windows, top[1], math.MaxInt64, red)+area(windows, top[1], limit, lower)),
		22+across, bin.Seconds()*float64(len(windows)))
}

// plot returns a plot with its axes and a dashed line at the limit.
func plot(y int, top int64, limit float64, areas string) string {
	return fmt.Sprintf(`<g transform="translate(22,%d)" shape-rendering="crispEdges">%s<path d="M0,0V%d H%d" fill="none" stroke="%s"/><path d="M0,%.1fh%d" stroke="#222" stroke-dasharray="3,2"/><text x="-2" y="7" text-anchor="end">%d</text></g>
`, y, areas, up, across, grey, up*(1-limit/float64(top)), across, top)
}

// area returns a filled step for each value, which ends at most.
func area(values []int64, top, most int64, fill string) string {
	var b strings.Builder
	for i, n := range values {
		fmt.Fprintf(&b, "V%.1fH%.1f", up*(1-float64(min(n, most))/float64(top)), float64(across*(i+1))/float64(len(values)))
	}
	return fmt.Sprintf(`<path d="M0,%d%sV%dZ" fill="%s"/>`, up, &b, up, fill)
}

// bins returns, for each bin, what was admitted in it and the most in a window of the interval that ends in it.
func (o *outcome) bins() (perBin, windows []int64) {
	arrivals := o.arrivals()
	last := arrivals[len(arrivals)-1].at + o.rate.Interval // no turn is later
	perBin, windows = make([]int64, last/bin+1), make([]int64, last/bin+1)
	for i := range windows {
		windows[i] = o.window(time.Duration(i) * bin)
	}
	for _, g := range o.grants {
		i := g.at / bin
		perBin[i], windows[i] = perBin[i]+g.permits, max(windows[i], o.window(g.at))
	}
	return perBin, windows
}
