// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/dinggate"
)

// A dingView shows the progress of a demo. It is not safe for concurrent use.
type dingView interface {
	begin(dingIntro)
	act(dingEvent)  // a part of the demo begins
	second(dingRow) // the counts of one second
	tell(dingEvent) // something happened
	end(dingSummary)
	// close restores the terminal. The view shows nothing after it.
	close()
}

// A dingLiveView also shows the present row between the seconds.
type dingLiveView interface {
	dingView
	now(dingRow)
}

func newDingView(out io.Writer, asJSON bool) dingView {
	switch {
	case asJSON:
		return &dingJSON{jsonView{out: out}}
	case term.Is(out):
		return &dingTerm{out: out, colour: os.Getenv("NO_COLOR") == ""}
	}
	return &dingPlain{out}
}

// A dingIntro describes a demo that begins.
type dingIntro struct {
	Where string        // which Redis
	URL   string        // of the gateway
	Ban   time.Duration // its length in the demo
}

func (i dingIntro) lines() []string {
	std := dinggate.Standard()
	return []string{
		fmt.Sprintf("%d services of one company call %d APIs of a DingTalk-like gateway as fast as they can.", len(dingServices), len(dingAPIs)),
		fmt.Sprintf("It takes %d calls a second of an application and an API, and %d in %v of an address.", std.AppAPI.Calls, std.IP.Calls, std.IP.Window),
		"The services are in this process, each with a Redis connection, a ratelimiter.Client",
		fmt.Sprintf("and a httplimit.Transport of its own; the network takes %v to %v each way.", dingLeastDelay, dingMostDelay),
		fmt.Sprintf("A ban of %v is shortened to %v, in the gateway and in the profile; all else is as it is.", std.IP.Penalty, i.Ban),
		fmt.Sprintf("The gateway: %s. The limiters: in %s.", visible(i.URL), visible(i.Where)),
	}
}

// A dingEvent is something that happened.
type dingEvent struct {
	Kind string
	At   time.Duration
	Text string
}

func (e dingEvent) String() string { return fmt.Sprintf("%6.2fs  %s", e.At.Seconds(), visible(e.Text)) }

// dingHeader is the header of the rows, 79 columns wide.
var dingHeader = []string{
	"         fleet  Redis: address  gateway",
	"  time waiting    free  silent  calls admitted rejected most/1s penalties   ban",
}

func (r dingRow) String() string {
	free := "-"
	if r.Free >= 0 {
		free = fmt.Sprint(r.Free)
	}
	return fmt.Sprintf("%5.1fs %7d %7s %7s %6d %8d %8d %7s %9d %5s", r.At.Seconds(), r.Waiting, free, left(r.CoolDown),
		r.Calls, r.Admitted, r.Rejected, fmt.Sprintf("%d/%d", r.Most, r.Limit), r.Penalties, left(r.Banned))
}

// left returns d as a countdown, rounded up, so that it does not reach 0 early.
func left(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fs", (d + 50*time.Millisecond - 1).Seconds())
}

// A dingPlain writes plain lines, for a file or a pipe, one a second.
type dingPlain struct{ out io.Writer }

func (v *dingPlain) begin(i dingIntro) {
	for _, line := range i.lines() {
		fmt.Fprintln(v.out, line)
	}
}

func (v *dingPlain) act(e dingEvent) {
	fmt.Fprintf(v.out, "\n%s\n%s\n%s\n", visible(e.Text), dingHeader[0], dingHeader[1])
}

func (v *dingPlain) second(r dingRow) { fmt.Fprintln(v.out, r) }
func (v *dingPlain) tell(e dingEvent) { fmt.Fprintln(v.out, e) }
func (v *dingPlain) close()           {}

func (v *dingPlain) end(s dingSummary) {
	fmt.Fprintln(v.out)
	for _, line := range s.lines() {
		fmt.Fprintln(v.out, line)
	}
	fmt.Fprintln(v.out, s)
}

// lines returns a summary of the parts.
func (s dingSummary) lines() []string {
	part := func(name string, length time.Duration, c dinggate.Counts) string {
		return fmt.Sprintf("%-12s %5d calls in %v, %d admitted, %d rejected", name, c.Calls, length, c.Admitted, c.Refused)
	}
	lines := []string{
		part("no limiter", s.Parts.Without, s.Without.Total),
		part("the profile", s.Parts.With, s.With.Total),
	}
	if b := s.Ban; b.Known.IsZero() {
		lines = append(lines, "the ban      nobody found out")
	} else {
		p := s.outside()
		lines = append(lines, fmt.Sprintf("the ban      known to all after %v; the gateway saw %d calls in it, the last after %v",
			ms(b.Known.Sub(b.Start)), p.Calls, ms(p.Last)))
	}
	return append(lines, fmt.Sprintf("after it     %5d calls admitted in %v", s.after(), s.Parts.After))
}
