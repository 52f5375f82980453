// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
)

// chartColumns is how many columns there is room for after a limiter's name.
const chartColumns = 62

// blocks are the heights of a column. The first stands for 0.
var blocks = []rune("·▁▂▃▄▅▆▇█")

// chart shows over time what was asked and what each limiter admitted, as the upper plots of a picture do.
// In colour, red marks the columns that are red in the lower plots.
func (v *compareTable) chart(c comparison) {
	bins := (int(c.length/c.bin) + chartColumns - 1) / chartColumns // in a column
	rows := append([]outcome{c.asked()}, c.outcomes...)
	most := int64(1)
	for _, o := range rows {
		most = max(most, slices.Max(columns(c.perBin(o), bins)))
	}
	v.println(v.colour.Paint(term.Dim, fmt.Sprintf("admitted per %v; %c is up to %d, %c nothing", c.bin*time.Duration(bins), blocks[len(blocks)-1], most, blocks[0])))
	for i, o := range rows {
		above := make([]bool, 0, chartColumns)
		for n := range slices.Chunk(c.windows(o), bins) {
			above = append(above, i > 0 && slices.Max(n) > c.rate.Permits)
		}
		v.println(fmt.Sprintf("%-15s ", o.limiter) + v.row(columns(c.perBin(o), bins), most, above))
	}
	v.println("")
}

// columns returns the sums of each so many bins.
func columns(bins []int64, each int) (sums []int64) {
	for part := range slices.Chunk(bins, each) {
		sum := int64(0)
		for _, n := range part {
			sum += n
		}
		sums = append(sums, sum)
	}
	return sums
}

// row returns a block for each height, those above the limit in red.
func (v *compareTable) row(heights []int64, most int64, above []bool) string {
	var b strings.Builder
	for i := 0; i < len(heights); {
		end := i + 1
		for end < len(heights) && above[end] == above[i] {
			end++
		}
		var part []rune
		for _, n := range heights[i:end] {
			part = append(part, blocks[(n*int64(len(blocks)-1)+most-1)/most])
		}
		if above[i] {
			b.WriteString(v.colour.Paint(term.Red, string(part)))
		} else {
			b.WriteString(string(part))
		}
		i = end
	}
	return b.String()
}
