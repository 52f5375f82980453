// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
)

// A termView writes coloured lines above a panel that shows the clients that wait and the present
// content of the keys.
type termView struct {
	mu      sync.Mutex
	out     io.Writer
	colour  term.Colours
	panel   int // lines of the panel on the screen
	waiting []exchange
	last    *redisKeys
	clock
}

// These sequences are understood by every terminal since the VT100. Lines that are too long are cut
// off instead of wrapped, so that the height of the panel does not depend on the width of the screen.
const (
	wrapOff    = "\x1b[?7l"
	wrapOn     = "\x1b[?7h"
	cursorOff  = "\x1b[?25l"
	cursorOn   = "\x1b[?25h"
	clearBelow = "\r\x1b[J"
)

func (v *termView) begin(i intro) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, line := range i.lines() {
		fmt.Fprintln(v.out, line) // before wrapOff: these may be long
	}
	fmt.Fprint(v.out, wrapOff+cursorOff+"\n")
}

func (v *termView) asked(e exchange) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting = append(v.waiting, e)
	v.scroll(e.Asked, v.colour.Paint(term.Dim, askLine(e)))
}

func (v *termView) answered(e exchange) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting = slices.DeleteFunc(v.waiting, func(w exchange) bool {
		return w.Client == e.Client && w.Num == e.Num && w.Asked == e.Asked
	})
	if e.Answer.Redis != nil {
		v.last = e.Answer.Redis
	}
	colour := map[int]string{200: term.Green, 429: term.Red}[e.Status]
	if colour == "" {
		colour = term.Yellow
	}
	v.scroll(e.Done, v.colour.Paint(colour, answerLine(e)))
}

func (v *termView) keys(now time.Duration, k *redisKeys) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = k
	v.scroll(now)
}

func (v *termView) end(s summary) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting = nil
	v.erase()
	colour := term.Green
	if s.Err != nil {
		colour = term.Red
	}
	fmt.Fprint(v.out, wrapOn+cursorOn+"\n")
	for _, line := range v.keyLines(0, v.last) {
		fmt.Fprintln(v.out, line)
	}
	fmt.Fprintf(v.out, "\n%s\n%s\n", s.counts(), v.colour.Paint(term.Bold+colour, s.String()))
	v.out = io.Discard
}

func (v *termView) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	fmt.Fprint(v.out, wrapOn+cursorOn)
	v.out = io.Discard
}

// scroll writes lines above the panel and draws the panel again.
func (v *termView) scroll(now time.Duration, lines ...string) {
	v.erase()
	for _, line := range lines {
		fmt.Fprintln(v.out, line)
	}
	panel := v.panelLines(now)
	v.panel = len(panel)
	fmt.Fprint(v.out, strings.Join(panel, ""))
}

func (v *termView) erase() {
	if v.panel > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA%s", v.panel, clearBelow)
	}
	v.panel = 0
}

func (v *termView) panelLines(now time.Duration) []string {
	lines := []string{v.colour.Paint(term.Dim, fmt.Sprintf("-- %5.1fs %s", now.Seconds(), strings.Repeat("-", 60)))}
	var who []string
	for _, w := range v.waiting {
		who = append(who, fmt.Sprintf("%s num=%s %.1fs", visible(w.Client), visible(w.Num), (now-w.Asked).Seconds()))
	}
	if len(who) == 0 {
		who = []string{"(nobody)"}
	}
	lines = append(lines, "waiting "+strings.Join(who, ", "))
	lines = append(lines, v.keyLines(now, v.last)...)
	for i := range lines {
		lines[i] += "\n"
	}
	return lines
}
