// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
)

const (
	roundAge     = 30 * time.Second // after which a look at a page begins another round, and at least roundRest times as long as the last took
	roundRest    = 20
	roundPause   = 15 * time.Second // at least, between the end of a round and the next one that somebody asks for
	roundLimit   = 10_000           // limiters
	examineLimit = 15 * time.Second
	namesShown   = 5 // limiters with the same finding that are shown at once
	namesKept    = 200
)

// rounds are the examinations of all limiters and servers, one at a time. What looks at all keys for one limiter waits
// for them as well.
type rounds struct {
	mu      sync.Mutex
	running bool
	looked  int // limiters, of the one that runs
	last    *doctor.Report
	sick    map[string][]string // what the last one has found of a limiter that is at least a warning: checks
	found   int                 // how many such findings there are, also of servers
	err     error               // of the last one
	ended   time.Time
	took    time.Duration

	once sync.Once
	turn chan struct{} // holds one token while somebody looks at all keys
}

// enter waits for the turn to look at all keys. It reports false if ctx is done before, or after clientsLimit.
func (s *rounds) enter(ctx context.Context) bool {
	s.once.Do(func() { s.turn = make(chan struct{}, 1) })
	ctx, cancel := context.WithTimeout(ctx, clientsLimit)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *rounds) leave() { <-s.turn }

// stale makes the next look at a page begin another round.
func (s *rounds) stale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = time.Time{}
}

// summary returns how many findings the last round has that are at least a warning, and those of each limiter.
func (s *rounds) summary() (found int, sick map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found, s.sick
}

// beginRound starts a round if the last one is too old, or again is set.
func (h *Handler) beginRound(again bool) {
	s := &h.rounds
	s.mu.Lock()
	defer s.mu.Unlock()
	age := time.Since(s.ended)
	if s.running || !s.ended.IsZero() && age < max(roundAge, roundRest*s.took) && !(again && age > roundPause) && !(s.err != nil && age > feedAge) {
		return
	}
	if h.start(h.round) {
		s.running, s.looked = true, 0
	}
}

// round examines the servers and the limiters.
func (h *Handler) round() {
	s := &h.rounds
	var report *doctor.Report
	begin := time.Now()
	err := context.DeadlineExceeded
	if s.enter(h.ctx) {
		report, err = h.roundAlone()
		s.leave()
	}
	if err != nil && h.ctx.Err() == nil {
		ping, cancel := context.WithTimeout(h.ctx, time.Second)
		if h.survey.Ping(ping) != nil {
			h.health.note(err)
		}
		cancel()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.ended, s.took, s.err = false, time.Now(), time.Since(begin), err
	if err != nil {
		return
	}
	s.last, s.found, s.sick = report, 0, map[string][]string{}
	for _, f := range report.Findings {
		if f.Severity <= doctor.Info {
			continue
		}
		s.found++
		// What is idle is not broken, and one limiter stands for many there.
		if f.Limiter != "" && f.Check != "idle" && !slices.Contains(s.sick[f.Limiter], f.Check) {
			s.sick[f.Limiter] = append(s.sick[f.Limiter], f.Check)
		}
	}
}

func (h *Handler) roundAlone() (*doctor.Report, error) {
	d := h.doctorOf()
	report, err := d.Servers(h.ctx)
	if err != nil {
		return nil, err
	}
	all, err := d.All(h.ctx, survey.Query{Pause: scanPause}, roundLimit, func(r *doctor.Report) {
		h.rounds.mu.Lock()
		h.rounds.looked = r.Limiters
		h.rounds.mu.Unlock()
	})
	if err != nil {
		return nil, err
	}
	report.Add(all)
	return report, nil
}

// A reportView is what the page shows of a report.
type reportView struct {
	*pageView
	Sick     bool
	Blind    bool // not all could be looked at
	Limiters string
	Groups   []groupView
	Skipped  []string
	More     int // of what was skipped
	Failed   string
	Note     string // what the commands need
}

// A groupView has the findings of one check that mean the same.
type groupView struct {
	findingView
	First, Rest []findingView
	More        int // findings that are not shown
	Count       int
}

type doctorView struct {
	*pageView
	Report  *reportView
	Running bool
	Looked  string
	At      string
	Failed  string
	Again   string
}

func (h *Handler) serveDoctor(w http.ResponseWriter, r *http.Request) {
	v := h.view(r)
	v.Title, v.Here = v.t("Doctor"), "doctor"
	v.State = "state" + withQuery(v.query())
	h.beginRound(r.URL.Query().Get("again") == "1")
	s := &h.rounds
	s.mu.Lock()
	dv := &doctorView{pageView: v, Running: s.running, Looked: v.number(int64(s.looked)), Again: "doctor" + withQuery(v.query("again", "1"))}
	if s.err != nil {
		dv.Failed = v.t(survey.OneLine(s.err))
	}
	last := s.last
	if !s.ended.IsZero() {
		dv.At = v.clock(s.ended)
	}
	s.mu.Unlock()
	if last != nil {
		dv.Report = h.reportOf(v, last, false)
		dv.Report.Blind = dv.Report.Blind || dv.Failed != "" // it is an old one
	}
	v.Refresh = dv.Running
	v.noteHealth(h)
	h.render(w, http.StatusOK, "doctor", v, dv)
}

// examine looks at one limiter with all checks.
func (h *Handler) examine(ctx context.Context, v *pageView, name string) *reportView {
	if !h.rounds.enter(ctx) {
		return &reportView{pageView: v, Failed: v.t("Somebody else looks at all keys at the moment. Try again soon.")}
	}
	defer h.rounds.leave()
	ctx, cancel := context.WithTimeout(ctx, examineLimit)
	defer cancel()
	report, err := h.doctorOf().Limiter(ctx, name)
	if err != nil {
		return &reportView{pageView: v, Failed: v.t(survey.OneLine(err))}
	}
	return h.reportOf(v, report, true)
}

// reportOf puts the findings together that say the same of several limiters, the worst first.
func (h *Handler) reportOf(v *pageView, r *doctor.Report, one bool) *reportView {
	o := &reportView{pageView: v, Sick: r.Sick(), Blind: r.Blind(), Limiters: v.number(int64(r.Limiters))}
	o.Note = v.Say(r.Needs(h.to))
	for _, group := range r.Groups() {
		g := groupView{findingView: h.finding(v, group[0]), Count: len(group), More: max(0, len(group)-namesShown-namesKept)}
		for i, f := range group[:len(group)-g.More] {
			x := h.finding(v, f)
			if one {
				x.Who, x.Link = shortName(f.Client), ""
			}
			if i < namesShown {
				g.First = append(g.First, x)
			} else {
				g.Rest = append(g.Rest, x)
			}
		}
		o.Groups = append(o.Groups, g)
	}
	for i, s := range r.Skipped {
		if i == 2*namesShown {
			o.More = len(r.Skipped) - i
			break
		}
		text := v.check(s.Check)
		for _, part := range []string{shortName(s.Limiter), s.Node} {
			if part != "" {
				text += " " + part
			}
		}
		o.Skipped = append(o.Skipped, survey.Visible(text+": "+v.t(survey.ShortNames(s.Why))))
	}
	return o
}
