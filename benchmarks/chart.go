// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// draw writes a chart of requests a second and p99 by number of callers, with logarithmic axes. It shows
// medians, with bars from minimum to maximum.
func (r report) draw(path string) error {
	rate, err := r.panel("requests a second", rateMetric)
	if err != nil {
		return err
	}
	latency, err := r.panel("p99, ms", p99Metric)
	if err != nil {
		return err
	}
	legend := rate.Legend
	rate.Legend, latency.Legend = plot.NewLegend(), plot.NewLegend()
	legend.Left, legend.Top, legend.Padding = true, true, vg.Points(4)
	const margin, right = 4 * vg.Millimeter, 10 * vg.Centimeter
	canvas := vgsvg.NewWith(vgsvg.UseWH(35*vg.Centimeter, 12*vg.Centimeter))
	dc := draw.New(canvas)
	dc.FillPolygon(color.White, []vg.Point{dc.Min, {X: dc.Max.X, Y: dc.Min.Y}, dc.Max, {X: dc.Min.X, Y: dc.Max.Y}})
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Centimeter, PadTop: margin, PadBottom: margin, PadLeft: margin}
	panels := plot.Align([][]*plot.Plot{{rate, latency}}, tiles, draw.Crop(dc, 0, -right, 0, 0))
	legend.Draw(draw.Crop(dc, dc.Max.X-right+margin, 0, 0, -3*margin))
	rate.Draw(panels[0][0])
	latency.Draw(panels[0][1])
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		return err
	}
	return f.Close()
}

func (r report) panel(title string, m metric) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "callers on one limiter"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = callerTicks(callerCounts(r.options)), decades{}
	p.Add(plotter.NewGrid())
	drawn := 0
	for _, a := range r.contestants {
		pts := r.points(a.key, m)
		if len(pts.XYs) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(pts)
		if err != nil {
			return nil, err
		}
		bars, err := plotter.NewYErrorBars(pts)
		if err != nil {
			return nil, err
		}
		colour := hue(drawn)
		line.Color, marks.Color, bars.Color = colour, colour, colour
		line.Dashes, marks.Shape = plotutil.Dashes(0), plotutil.Shape(drawn)
		if a.ceiling {
			line.Dashes = plotutil.Dashes(2)
		}
		if a.key == oursKey {
			line.Width = vg.Points(3)
		}
		p.Add(line, marks, bars)
		p.Legend.Add(strings.Trim(a.titleWithVersion(), "*"), line, marks)
		drawn++
	}
	if drawn == 0 {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 1, 10, 1, 10 // a logarithmic axis without values panics
	}
	widen(&p.X)
	widen(&p.Y)
	return p, nil
}

// widen widens an axis whose values are all the same. Package plot would begin it at the value minus 1, and a
// logarithmic axis cannot begin at 0.
func widen(a *plot.Axis) {
	if a.Min == a.Max {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// seriesPoints are medians with their spread.
type seriesPoints struct {
	plotter.XYs
	plotter.YErrors
}

func (r report) points(contestant string, m metric) seriesPoints {
	var pts seriesPoints
	for _, callers := range callerCounts(r.options) {
		s := r.results.series(callersKey(callers), contestant, m)
		if len(s) == 0 || s.min() <= 0 {
			continue
		}
		mid := s.median()
		pts.XYs = append(pts.XYs, plotter.XY{X: float64(callers), Y: mid})
		pts.YErrors = append(pts.YErrors, struct{ Low, High float64 }{mid - s.min(), s.max() - mid})
	}
	return pts
}

// hue returns the colour of the i-th line.
func hue(i int) color.Color {
	colors := []color.RGBA{
		{0xd0, 0, 0, 0xff}, {0x1f, 0x77, 0xb4, 0xff}, {0xff, 0x7f, 0x0e, 0xff}, {0x2c, 0xa0, 0x2c, 0xff}, {0x94, 0x67, 0xbd, 0xff},
		{0x8c, 0x56, 0x4b, 0xff}, {0xe3, 0x77, 0xc2, 0xff}, {0x50, 0x50, 0x50, 0xff}, {0x17, 0xbe, 0xcf, 0xff},
	}
	return colors[i%len(colors)]
}

// decades labels the powers of ten.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(low, high)
	for i, t := range ticks {
		switch {
		case t.Label == "":
		case t.Value >= 1e6:
			ticks[i].Label = fmt.Sprintf("%g M", t.Value/1e6)
		case t.Value >= 1e3:
			ticks[i].Label = fmt.Sprintf("%g k", t.Value/1e3)
		}
	}
	return ticks
}

func callerTicks(counts []int) plot.Ticker {
	var ticks plot.ConstantTicks
	for _, n := range counts {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: fmt.Sprint(n)})
	}
	return ticks
}
