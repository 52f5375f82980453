// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"math"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
)

const (
	timelineWide = 720.0
	timelineHigh = 120.0
	timelineBars = 120
)

// A timelineView is the window of a limiter as a picture: each bar is what was granted in a 120th of the interval. Time
// runs from left to right; what leaves on the left comes back.
type timelineView struct {
	Bars        []barView
	Gap         *barView // members in between that were not read
	Most        string   // permits of the highest bar
	Begin, Half string   // what the ends stand for
	Text        string   // the picture in words
	Empty       bool
}

// A barView is a rectangle. Its numbers are ready to be printed.
type barView struct{ X, Y, Width, Height, Class, Title string }

func coordinate(f float64) string { return fmt.Sprintf("%.1f", f) }

// kinds are the parts of a bar from the bottom to the top.
const (
	kindGo = iota
	kindJava
	kindMark // nobody's grant: a cool-down, callers that wait
	kinds
)

func kindOf(m survey.Member) int {
	switch {
	case m.Mark() != 0:
		return kindMark
	case view.WriterOf(m) == view.ByJava:
		return kindJava
	}
	return kindGo
}

// timelineOf draws the members of a state whose rate is known.
func timelineOf(v *pageView, st *survey.State) *timelineView {
	interval := st.Rate.Interval
	width := max(interval/timelineBars, time.Millisecond)
	now, begin := st.Time.UnixMilli(), st.Time.Add(-interval).UnixMilli()
	slot := func(at int64) int64 { return int64(math.Floor(float64(at) / float64(width.Milliseconds()))) }
	x := func(at int64) float64 { return timelineWide * float64(at-begin) / float64(max(1, now-begin)) }

	var sums [kinds]int64
	bars := map[int64]*[kinds]int64{}
	highest := int64(1)
	first := slot(now)
	for _, m := range st.Members {
		if m.Expired(st.Time, interval) || m.Permits == 0 {
			continue
		}
		i := min(slot(m.Time().UnixMilli()), slot(now)) // a grant that is ahead of the clock stands at its end
		b := bars[i]
		if b == nil {
			b = &[kinds]int64{}
			bars[i] = b
		}
		first = min(first, i)
		kind := kindOf(m)
		b[kind] += int64(m.Permits)
		sums[kind] += int64(m.Permits)
		if all := b[kindGo] + b[kindJava]; all > highest {
			highest = all
		}
	}
	names := [kinds]string{"Go", "Java", v.t("blocked")}
	o := &timelineView{Most: v.number(highest), Begin: survey.Exact(interval), Half: survey.Exact(interval / 2), Empty: len(bars) == 0}
	for i := first; i <= slot(now) && len(bars) > 0; i++ {
		b := bars[i]
		if b == nil {
			continue
		}
		left := max(0, x(i*width.Milliseconds()))
		right := min(timelineWide, x((i+1)*width.Milliseconds()))
		high := 0.0
		for kind, class := range []string{"go", "java", "mark"} {
			part := min(timelineHigh-high, (timelineHigh-8)*float64(b[kind])/float64(highest))
			if b[kind] > 0 && part > 0 {
				part = max(part, 1.5)
				o.Bars = append(o.Bars, barView{coordinate(left), coordinate(timelineHigh - high - part), coordinate(max(1.5, right-left-0.8)), coordinate(part), class,
					names[kind] + ": " + v.number(b[kind])})
				high += part
			}
		}
	}
	if n := len(st.Members); !st.Whole && n > 1 {
		older, newer := st.Members[n/2-1].Time().UnixMilli(), st.Members[n/2].Time().UnixMilli()
		if left, right := max(0, x(older)), min(timelineWide, x(newer)); right > left {
			o.Gap = &barView{X: coordinate(left), Y: "0", Width: coordinate(right - left), Height: coordinate(timelineHigh), Class: "gap"}
		}
	}
	o.Text = v.t("Permits in the last %[1]s: %[2]s by Go, %[3]s by Java.", survey.Exact(interval), v.number(sums[kindGo]), v.number(sums[kindJava]))
	if sums[kindMark] > 0 {
		o.Text += " " + v.t("%s are blocked.", v.number(sums[kindMark]))
	}
	if !st.Whole {
		o.Text += " " + v.t("Only the 500 oldest and the 500 newest of %s members were read.", v.number(st.Count))
	}
	return o
}
