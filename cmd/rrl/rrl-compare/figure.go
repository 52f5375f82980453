// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/survey"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A figure is one picture, a grid of cells.
type figure struct {
	name  string
	title string
	about string
	cells []cell
}

// A cell shows one traffic at one limiter: in its upper plot what was admitted in each bin, in its lower
// plot what the windows of the interval held. All cells of a traffic have the same axes.
type cell struct {
	title   string
	said    string // the numbers, in a line
	above   bool   // whether the limit was exceeded
	asked   bool   // these are the requests, not what was admitted
	bins    []int64
	windows []int64
	axes    axes
}

type axes struct {
	bin, interval, length time.Duration
	limit                 int64
	mostInBin             int64
	mostInWindow          int64
}

// figures returns a figure for each case, or for each limiter.
func figures(all []comparison, by string) (list []figure) {
	if by == byCase {
		for i := range all {
			c := &all[i]
			f := figure{name: c.name, title: fmt.Sprintf("%s: a limit of %v", c.name, c.rate), about: survey.Visible(c.about)}
			a := c.axes(append([]outcome{c.asked()}, c.outcomes...))
			asked := c.cell(c.asked(), a)
			asked.title, asked.asked, asked.above = "what is asked", true, false
			asked.said = fmt.Sprintf("%d permits", c.asked().admitted)
			f.cells = append(f.cells, asked)
			for _, o := range c.outcomes {
				f.cells = append(f.cells, c.cell(o, a))
			}
			list = append(list, f)
		}
		return list
	}
	for n, o := range all[0].outcomes {
		f := figure{name: o.limiter, title: o.limiter}
		for i := range all {
			c := &all[i]
			cell := c.cell(c.outcomes[n], c.axes(c.outcomes))
			cell.title = fmt.Sprintf("%s: %v", c.name, c.rate)
			f.cells = append(f.cells, cell)
		}
		list = append(list, f)
	}
	return list
}

// axes returns axes with room for all of outcomes.
func (c *comparison) axes(outcomes []outcome) axes {
	a := axes{bin: c.bin, interval: c.rate.Interval, length: c.length, limit: c.rate.Permits, mostInWindow: c.rate.Permits}
	a.mostInBin = int64(a.average()) // the limit's lines are inside
	for _, o := range outcomes {
		a.mostInBin = max(a.mostInBin, slices.Max(c.perBin(o)))
		a.mostInWindow = max(a.mostInWindow, slices.Max(c.windows(o)))
	}
	return a
}

func (c *comparison) cell(o outcome, a axes) cell {
	return cell{
		title: o.limiter,
		said: fmt.Sprintf("%d of %d admitted; most in %v: %d, %s", o.admitted, o.admitted+o.rejected,
			c.rate.Interval, o.worst, o.times(c.rate.Permits)),
		above:   o.worst > c.rate.Permits,
		bins:    c.perBin(o),
		windows: c.windows(o),
		axes:    a,
	}
}

// average returns what the limit allows in a bin, in the long run.
func (a axes) average() float64 { return float64(a.limit) * float64(a.bin) / float64(a.interval) }

const (
	figureColumns = 3
	figureWidth   = 720 // points, of which GitHub shows about 620
	figureHead    = 58
	figureRow     = 172
)

func (f figure) columns() int { return min(figureColumns, len(f.cells)) }
func (f figure) rows() int    { return (len(f.cells) + figureColumns - 1) / figureColumns }

func (f figure) size() (w, h vg.Length) {
	return figureWidth, figureHead + vg.Length(f.rows())*figureRow
}

func (f figure) svg() ([]byte, error) {
	canvas := vgsvg.NewWith(vgsvg.UseWH(f.size()))
	f.draw(draw.New(canvas))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	// The font is set once, with alternatives of the same widths, which saves a quarter of the bytes.
	return []byte(strings.NewReplacer(
		"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", "",
		"font-family:Liberation Sans;font-variant:normal;", "",
		"<svg ", `<svg font-family="'Liberation Sans',Arial,Helvetica,sans-serif" `,
	).Replace(b.String())), err
}

func (f figure) png() ([]byte, error) {
	w, h := f.size()
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(144))}
	f.draw(draw.New(canvas))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

func (f figure) draw(dc draw.Canvas) {
	dc.FillPolygon(white, []vg.Point{dc.Min, {X: dc.Max.X, Y: dc.Min.Y}, dc.Max, {X: dc.Min.X, Y: dc.Max.Y}})
	f.drawHead(draw.Crop(dc, 10, -10, dc.Max.Y-dc.Min.Y-figureHead, -6))

	// Each cell has two plots. A place without a cell stays empty.
	plots := make([][]*plot.Plot, 2*f.rows())
	for i := range plots {
		plots[i] = make([]*plot.Plot, f.columns())
	}
	for i, c := range f.cells {
		row, column := i/f.columns(), i%f.columns()
		lowest := i+f.columns() >= len(f.cells)
		plots[2*row][column], plots[2*row+1][column] = c.upper(), c.lower(lowest)
	}
	body := draw.Crop(dc, 0, 0, 0, -figureHead)
	tiles := draw.Tiles{Rows: len(plots), Cols: f.columns(), PadX: 12, PadY: 7, PadLeft: 6, PadRight: 12, PadBottom: 6}
	for i, row := range plot.Align(plots, tiles, body) {
		for j, canvas := range row {
			if plots[i][j] == nil {
				continue
			}
			plots[i][j].Draw(canvas)
			if i%2 == 0 {
				f.cells[i/2*f.columns()+j].label(plots[i][j].DataCanvas(canvas))
			}
		}
	}
}
