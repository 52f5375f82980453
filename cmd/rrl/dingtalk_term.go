// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
)

// A dingTerm writes coloured lines above a panel that shows the present row.
type dingTerm struct {
	out    io.Writer
	colour term.Colours
	panel  []string // on the screen
}

func (v *dingTerm) begin(i dingIntro) {
	for _, line := range i.lines() {
		fmt.Fprintln(v.out, line) // before wrapOff: these may be long
	}
	fmt.Fprint(v.out, wrapOff+cursorOff)
}

func (v *dingTerm) act(e dingEvent) {
	v.scroll("", v.colour.Paint(term.Bold, visible(e.Text)), v.colour.Paint(term.Dim, dingHeader[0]), v.colour.Paint(term.Dim, dingHeader[1]))
}

func (v *dingTerm) second(r dingRow) {
	colour := term.Green
	switch {
	case r.Rejected > 0:
		colour = term.Red
	case r.Banned > 0:
		colour = term.Yellow
	}
	v.scroll(v.colour.Paint(colour, r.String()))
}

func (v *dingTerm) tell(e dingEvent) { v.scroll(v.colour.Paint(term.Bold+term.Yellow, e.String())) }

// now draws the panel.
func (v *dingTerm) now(r dingRow) {
	services := make([]string, len(dingServices))
	for i, name := range dingServices {
		services[i] = fmt.Sprintf("%s %d", name, r.Sent[i])
	}
	redis := "no limiter"
	switch {
	case r.CoolDown > 0:
		redis = v.colour.Paint(term.Yellow, "nobody gets a permit for "+left(r.CoolDown))
	case r.Free >= 0:
		redis = fmt.Sprintf("the address has %d permits", r.Free)
	}
	gateway := fmt.Sprintf("most in any 1s %d (limit %d), penalties %d", r.Most, r.Limit, r.Penalties)
	if r.Banned > 0 {
		gateway += ", " + v.colour.Paint(term.Red, "the address is banned for "+left(r.Banned))
	}
	v.erase()
	v.panel = []string{
		v.colour.Paint(term.Dim, fmt.Sprintf("-- %5.1fs %s", r.At.Seconds(), strings.Repeat("-", 60))),
		fmt.Sprintf("fleet    sent %s; %d wait", strings.Join(services, ", "), r.Waiting),
		"Redis    " + redis,
		"gateway  " + gateway,
	}
	v.draw()
}

func (v *dingTerm) end(s dingSummary) {
	v.erase()
	colour := term.Green
	if s.Err != nil {
		colour = term.Red
	}
	fmt.Fprint(v.out, wrapOn+cursorOn+"\n")
	for _, line := range s.lines() {
		fmt.Fprintln(v.out, line)
	}
	fmt.Fprintln(v.out, v.colour.Paint(term.Bold+colour, s.String()))
	v.out = io.Discard
}

func (v *dingTerm) close() {
	v.erase()
	fmt.Fprint(v.out, wrapOn+cursorOn)
	v.out = io.Discard
}

// scroll writes lines above the panel.
func (v *dingTerm) scroll(lines ...string) {
	panel := v.panel
	v.erase()
	for _, line := range lines {
		fmt.Fprintln(v.out, line)
	}
	v.panel = panel
	v.draw()
}

func (v *dingTerm) draw() {
	for _, line := range v.panel {
		fmt.Fprintln(v.out, line)
	}
}

func (v *dingTerm) erase() {
	if len(v.panel) > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA%s", len(v.panel), clearBelow)
	}
	v.panel = nil
}
