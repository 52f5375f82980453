// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
)

const (
	historyKept  = time.Hour
	historyLeast = time.Minute     // that is drawn
	historyEvery = 5 * time.Second // between two samples that are kept
	historyMost  = 100             // limiters, of which each takes 24 bytes a sample: 17 KB
	historyWorst = 20              // limiters of each list that are among them
)

// A history keeps what was read of limiters that somebody looked at, or that came first in a list. It is that of this process; it
// is gone when the process ends.
type history struct {
	mu sync.Mutex
	of map[feedKey]*past
}

// A past has the samples of a limiter, the oldest first.
type past struct{ samples []sample }

type sample struct {
	at      int64 // in s, by the clock of Redis
	wait    int32 // of a new caller, in ms, at most 24 days
	waiting int32 // callers
	share   float32
}

// add keeps a row, unless the last one is newer than historyEvery. If there are too many limiters, the one that was not read for
// longest goes.
func (h *history) add(r *view.Row) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[feedKey]*past{}
	}
	key, at := feedKey{r.Name, r.Client}, r.At/1000
	p := h.of[key]
	if p == nil {
		if len(h.of) == historyMost {
			var oldest feedKey
			for k, x := range h.of {
				if o := h.of[oldest]; o == nil || x.last() < o.last() {
					oldest = k
				}
			}
			delete(h.of, oldest)
		}
		p = &past{}
		h.of[key] = p
	}
	if len(p.samples) > 0 && at < p.last()+int64(historyEvery/time.Second) {
		return
	}
	begin := at - int64(historyKept/time.Second)
	gone, _ := slices.BinarySearchFunc(p.samples, begin, func(s sample, at int64) int { return int(s.at - at) })
	p.samples = append(slices.Delete(p.samples, 0, gone), sample{at, int32(min(r.Queued.Milliseconds(), 1<<31-1)), int32(min(r.Waiting, 1<<31-1)), float32(r.Share())})
}

func (p *past) last() int64 { return p.samples[len(p.samples)-1].at }

// A pastView draws what is kept: how much of the rate was used, and how many callers waited.
type pastView struct {
	Span             string   // from the left to the right
	From, Half, Till string   // by the clock of Redis
	Used, Waiting    []string // points of lines, which end where nobody looked; none of Waiting for nothing
	Most             string   // callers at the top of the picture
	Text, Limiting   string
}

// unseen is how long nobody looked if that is a gap, in s.
const unseen = 60

// limitingSince returns since when a new caller would have had to wait, or others waited, without a break and without a gap, by the
// samples. It is 0 if that is not so now.
func (p *past) limitingSince() (since int64) {
	for i, s := range slices.Backward(p.samples) {
		if s.waiting == 0 && s.wait == 0 || i < len(p.samples)-1 && p.samples[i+1].at-s.at > unseen {
			break
		}
		since = s.at
	}
	return since
}

// view draws what is kept of a limiter, or returns nil if that is less than two samples.
func (h *history) view(v *pageView, key feedKey, now time.Time) *pastView {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of[key]
	if p == nil || len(p.samples) < 2 {
		return nil
	}
	span := min(max(historyLeast, now.Sub(time.Unix(p.samples[0].at, 0))), historyKept)
	begin, most, wait := now.Add(-span).Unix(), int32(0), int32(0)
	for _, s := range p.samples {
		most, wait = max(most, s.waiting), max(wait, s.wait)
	}
	used, waiting := &strings.Builder{}, &strings.Builder{}
	o := &pastView{}
	ends := func() {
		if used.Len() > 0 {
			o.Used, o.Waiting = append(o.Used, used.String()), append(o.Waiting, waiting.String())
		}
		used.Reset()
		waiting.Reset()
	}
	for i, s := range p.samples {
		x := timelineWide * float64(s.at-begin) / span.Seconds()
		if x < 0 {
			continue
		}
		if i > 0 && s.at-p.samples[i-1].at > unseen {
			ends()
		}
		again := 1
		if used.Len() == 0 { // a line begins with its point twice, so that a sample alone is a dot
			again = 2
		}
		for range again {
			fmt.Fprintf(used, "%.1f,%.1f ", x, timelineHigh*(1-float64(s.share)))
			fmt.Fprintf(waiting, "%.1f,%.1f ", x, timelineHigh*(1-float64(s.waiting)/float64(max(1, most))))
		}
	}
	ends()
	o.Span, o.Most = survey.Brief(span.Round(time.Second)), v.number(int64(most))
	o.From, o.Half, o.Till = v.clock(now.Add(-span)), v.clock(now.Add(-span/2)), v.clock(now)
	o.Text = v.t("Since %[1]s, as far as somebody looked: at most %[2]s callers waited, and a new caller up to %[3]s.", v.clock(time.Unix(p.samples[0].at, 0)), v.number(int64(most)),
		survey.Brief(max(0, time.Duration(wait)*time.Millisecond)))
	if since := p.limitingSince(); since > 0 {
		o.Limiting = v.t("It has been limiting without a break since %s, or longer.", v.clock(time.Unix(since, 0)))
	}
	if most == 0 {
		o.Waiting = nil
	}
	return o
}
