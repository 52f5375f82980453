// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
)

// A Style is how a table writes numbers, words, and what is not known.
type Style struct {
	None   string
	Number func(n int64) string
	Word   func(text string, args ...any) string
}

// Cells are a row of a table.
type Cells struct {
	Name, Type, Rate, Granted, Used, Waiting, Wait string
	CoolDown                                       string // empty without one
	TTL, Members, By, Node                         string
}

// Cells returns r as a table has it.
func (r *Row) Cells(s Style) Cells {
	c := Cells{Name: survey.VisibleName(r.Name), Type: r.Rate.Type.String(), Rate: survey.RateText(r.Rate), Granted: s.None, Used: s.None, Waiting: s.None, Wait: s.None, TTL: s.None,
		Members: s.Number(r.Members), By: r.By.String(), Node: survey.Visible(r.Node)}
	switch {
	case r.Kind != survey.Live:
		c.Type, c.Rate = s.Word(r.Kind.String()), s.None
	case r.Rate.Permits == 0:
		c.Type, c.Rate = s.Word("malformed"), s.None
	}
	switch {
	case r.Is(Stuck):
		c.Wait = s.Word("stuck")
	case r.Is(Malformed) && r.Kind == survey.Live:
		c.Wait = s.Word("fails")
	case r.Queued != survey.Unknown:
		c.Wait = survey.Brief(r.Queued)
	}
	if r.Used != survey.Unknown {
		c.Used, c.Granted = s.Number(r.Used), PerSecondText(r.Granted())
	}
	if r.Waiting > 0 {
		c.Waiting = s.Number(r.Waiting)
	}
	if r.CoolDown > 0 {
		c.CoolDown = survey.Brief(time.Duration(r.CoolDown-r.At) * time.Millisecond)
	}
	if r.TTL >= 0 {
		c.TTL = survey.Brief(r.TTL)
	}
	if r.Members == 0 && (r.Is(Malformed|PerClient) || r.Kind == survey.Hidden) {
		c.Members = s.None
	}
	return c
}

// PerSecondText returns a number of permits a second, with three digits or more.
func PerSecondText(n float64) string {
	if n >= 999.5 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

// ClientCells are a row of the table of clients.
type ClientCells struct{ ID, Left, Waiting, Wait, Members, Last, TTL string }

// ClientCells returns a client, as of v.Clients, as a table has it.
func (v *Limiter) ClientCells(s Style) ClientCells {
	c := ClientCells{ID: survey.VisibleName(v.ClientID), Left: s.None, Waiting: s.None, Wait: s.None, Members: s.Number(v.Count), Last: s.None, TTL: s.None}
	if v.Available != survey.Unknown {
		c.Left, c.Wait = s.Number(v.Available), survey.Brief(v.Queued)
	}
	if v.Row.Waiting > 0 {
		c.Waiting = s.Number(v.Row.Waiting)
	}
	if at, ok := v.State.LastGrant(); ok {
		c.Last = s.Word("%s ago", survey.Brief(max(0, v.Time.Sub(at))))
	}
	if ttl := max(v.TTLs[1], v.TTLs[2]); ttl >= 0 {
		c.TTL = survey.Brief(ttl)
	}
	return c
}
