// SPDX-License-Identifier: Apache-2.0

package main

import (
	"image/color"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colours can be told apart by the colour-blind, and in shades of grey.
var (
	white    = color.RGBA{0xff, 0xff, 0xff, 0xff}
	ink      = color.RGBA{0x22, 0x22, 0x22, 0xff}
	pale     = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
	grey     = color.RGBA{0x99, 0x99, 0x99, 0xff}
	blue     = color.RGBA{0x1f, 0x6f, 0xb4, 0xff}
	lightish = color.RGBA{0xa6, 0xcb, 0xe8, 0xff}
	warning  = color.RGBA{0xc6, 0x28, 0x28, 0xff}
)

func face(size vg.Length, bold bool) font.Font {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = 3 // font.WeightBold of golang.org/x/image, which nothing else here needs
	}
	return f
}

func style(size vg.Length, bold bool, c color.Color) text.Style {
	return text.Style{Font: face(size, bold), Color: c, Handler: plot.DefaultTextHandler}
}

// drawHead writes the title, and a legend below it.
func (f figure) drawHead(dc draw.Canvas) {
	y := dc.Max.Y
	line := func(s text.Style, words string) {
		s.YAlign = draw.YTop
		dc.FillText(s, vg.Point{X: dc.Min.X, Y: y}, words)
		y -= s.Font.Size * 1.5
	}
	line(style(12, true, ink), f.title)
	if f.about != "" {
		line(style(9, false, ink), f.about)
	}
	y -= 8
	x := dc.Min.X
	say := func(words string, mark func(x0, x1 vg.Length)) {
		mark(x, x+14)
		s := style(8, false, ink)
		s.YAlign = draw.YCenter
		dc.FillText(s, vg.Point{X: x + 18, Y: y}, words)
		x += 18 + s.Width(words)*1.2 + 10 // the font of a viewer may be wider
	}
	box := func(c color.Color) func(x0, x1 vg.Length) {
		return func(x0, x1 vg.Length) {
			dc.FillPolygon(c, []vg.Point{{X: x0, Y: y - 4}, {X: x1, Y: y - 4}, {X: x1, Y: y + 4}, {X: x0, Y: y + 4}})
		}
	}
	say("admitted", box(blue))
	if f.cells[0].asked {
		say("asked", box(grey))
	}
	say("most in a window of the interval that ends here", box(lightish))
	say("above the limit", box(warning))
	say("the limit; in the upper plot its average", func(x0, x1 vg.Length) { dc.StrokeLine2(limitLine(), x0, y, x1, y) })
}

func limitLine() draw.LineStyle {
	return draw.LineStyle{Color: ink, Width: 0.8, Dashes: []vg.Length{3, 2}}
}

// label writes the title above the plot, in the space that upper left for it.
func (c cell) label(data draw.Canvas) {
	title, said := style(9, true, ink), style(7.5, false, ink)
	if c.above {
		title.Color, said.Color = warning, warning
	}
	data.FillText(title, vg.Point{X: data.Min.X, Y: data.Max.Y + 15}, c.title)
	data.FillText(said, vg.Point{X: data.Min.X, Y: data.Max.Y + 5}, c.said)
}

// panel returns an empty plot over the time of the traffic.
func (c cell) panel(most int64) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Min, p.X.Max = 0, c.axes.length.Seconds()
	p.Y.Min, p.Y.Max = 0, top(most)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding = 0
		a.LineStyle = draw.LineStyle{Color: grey, Width: 0.5}
		a.Tick.LineStyle, a.Tick.Length = a.LineStyle, 2
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = face(7, false), ink
		a.Tick.Label.Font, a.Tick.Label.Color = face(6.5, false), ink
		a.Label.Padding = 1
	}
	grid := plotter.NewGrid()
	grid.Vertical = draw.LineStyle{}
	grid.Horizontal = draw.LineStyle{Color: pale, Width: 0.4}
	p.Add(grid)
	return p
}

// upper returns the plot of what was admitted in each bin, with the limit as an average.
func (c cell) upper() *plot.Plot {
	p := c.panel(c.axes.mostInBin)
	p.Title.Text, p.Title.Padding = " ", 16
	p.Title.TextStyle = style(5, false, ink)
	p.Y.Label.Text = "per " + c.axes.bin.String()
	p.Y.Tick.Marker = even(c.axes.mostInBin, 4)
	p.X.Tick.Marker = unlabelled(timeTicks(c.axes.length))
	fill := blue
	if c.asked {
		fill = grey
	}
	p.Add(c.area(c.bins, fill))
	p.Add(c.level(c.axes.average()))
	return p
}

// lower returns the plot of what the windows held, with what exceeds the limit in red.
func (c cell) lower(lowest bool) *plot.Plot {
	p := c.panel(c.axes.mostInWindow)
	p.Y.Label.Text = "in " + c.axes.interval.String()
	p.Y.Tick.Marker = multiples(c.axes.limit, c.axes.mostInWindow)
	p.X.Tick.Marker = timeTicks(c.axes.length)
	if lowest {
		p.X.Label.Text = "seconds"
	}
	if c.asked {
		p.Add(c.area(c.windows, pale))
	} else {
		within := make([]int64, len(c.windows))
		for i, n := range c.windows {
			within[i] = min(n, c.axes.limit)
		}
		p.Add(c.area(within, lightish))
		for _, part := range c.aboveLimit() {
			p.Add(part)
		}
	}
	p.Add(c.level(float64(c.axes.limit)))
	return p
}

// area returns a filled step for each bin. Successive steps of equal height are merged, for smaller files.
func (c cell) area(values []int64, fill color.Color) *plotter.Line {
	var steps plotter.XYs
	for i, n := range values {
		if i == 0 || n != values[i-1] {
			steps = append(steps, plotter.XY{X: (time.Duration(i) * c.axes.bin).Seconds(), Y: float64(n)})
		}
	}
	steps = append(steps, plotter.XY{X: c.axes.length.Seconds()})
	return &plotter.Line{XYs: steps, StepStyle: plotter.PostStep, FillColor: fill}
}

// aboveLimit returns what the windows held beyond the limit, a polygon for each time without a gap. An area
// down to 0 with the rest painted over it would leave an edge of its colour.
func (c cell) aboveLimit() (parts []*plotter.Polygon) {
	at := func(i int) float64 { return (time.Duration(i) * c.axes.bin).Seconds() }
	limit := float64(c.axes.limit)
	for i := 0; i < len(c.windows); i++ {
		if c.windows[i] <= c.axes.limit {
			continue
		}
		outline, last := plotter.XYs{{X: at(i), Y: limit}}, limit
		for ; i < len(c.windows) && c.windows[i] > c.axes.limit; i++ {
			n := float64(c.windows[i])
			if last > limit && n != last {
				outline = append(outline, plotter.XY{X: at(i), Y: last})
			}
			if n != last {
				outline = append(outline, plotter.XY{X: at(i), Y: n})
			}
			last = n
		}
		outline = append(outline, plotter.XY{X: at(i), Y: last}, plotter.XY{X: at(i), Y: limit})
		parts = append(parts, &plotter.Polygon{XYs: []plotter.XYs{outline}, Color: warning})
	}
	return parts
}

func (c cell) level(y float64) *plotter.Line {
	return &plotter.Line{XYs: plotter.XYs{{X: 0, Y: y}, {X: c.axes.length.Seconds(), Y: y}}, LineStyle: limitLine()}
}

// even returns about so many ticks at round numbers.
func even(most int64, about int) plot.ConstantTicks {
	step := int64(1)
	for factor := int64(1); ; factor *= 10 {
		for _, digit := range []int64{1, 2, 5} {
			if step = digit * factor; most/step <= int64(about) {
				return every(step, most)
			}
		}
	}
}

// top returns the end of an axis.
func top(most int64) float64 { return float64(most) * 1.05 }

func every(step, most int64) (ticks plot.ConstantTicks) {
	for n := int64(0); float64(n) <= top(most); n += step {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strconv.FormatInt(n, 10)})
	}
	return ticks
}

// multiples returns ticks at 0, at the limit and at up to three of its multiples.
func multiples(limit, most int64) plot.ConstantTicks {
	return every(limit*(most/limit/4+1), most)
}

// timeTicks returns the ticks of an axis of time.
func timeTicks(length time.Duration) plot.ConstantTicks {
	if length < 2*time.Second {
		var ticks plot.ConstantTicks
		step := 100 * time.Millisecond
		if length > 5*step {
			step *= 5
		}
		for at := time.Duration(0); at <= length; at += step {
			ticks = append(ticks, plot.Tick{Value: at.Seconds(), Label: strconv.FormatFloat(at.Seconds(), 'g', -1, 64)})
		}
		return ticks
	}
	return slices.DeleteFunc(even(int64(length/time.Second), 8), func(t plot.Tick) bool { return t.Value > length.Seconds() })
}

func unlabelled(ticks plot.ConstantTicks) plot.ConstantTicks {
	for i := range ticks {
		ticks[i].Label = ""
	}
	return ticks
}
