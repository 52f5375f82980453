// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
)

const (
	membersShown = 20
	mostClients  = 100
	// clientsLimit is how long the search for the clients of a limiter may take, which looks at all keys.
	clientsLimit = 10 * time.Second
)

// A liveView is the part of a limiter's page that moves.
type liveView struct {
	*pageView
	L          *view.Limiter
	At, Node   string
	Problem    string
	PerClient  bool // and this is not the page of a client
	Left, Rate string
	Known      bool
	Waiting    string // callers, or empty
	Granted    string // a second
	Wait       string
	Count      string
	Expired    string // members that the next caller reclaims
	Timeline   *timelineView
	Past       *pastView
	Members    []memberView
	More       bool // members
	By         []string
	Findings   []findingView
}

type memberView struct{ At, Permits, Back, By, Process, What, Bytes string }

type findingView struct {
	ID, Check, Severity, Word              string
	Who, Link, Found, Means, Java, Go, Fix string
	Runs                                   bool       // Fix is a command
	Steps                                  []stepView // the commands of Fix, unless Fix is one command
}

// liveOf returns what the page shows of a state.
func (h *Handler) liveOf(v *pageView, st *survey.State) *liveView {
	l := view.Of(st)
	o := &liveView{pageView: v, L: l, At: v.clock(st.Time), Node: survey.Visible(st.Node), PerClient: l.Is(view.PerClient), Count: v.number(st.Count)}
	if st.Problem != nil && !l.Absent {
		o.Problem = v.t(survey.OneLine(st.Problem))
	}
	if st.Problem == nil {
		if o.Rate = v.number(st.Rate.Permits); l.Available != survey.Unknown {
			o.Known, o.Left, o.Granted = true, v.number(l.Available), view.PerSecondText(l.Granted())
		}
		if l.Queued > 0 {
			o.Wait = survey.Brief(l.Queued)
		}
		if l.Row.Waiting > 0 {
			o.Waiting = v.number(l.Row.Waiting)
		}
		if !o.PerClient {
			o.Timeline = timelineOf(v, st)
		}
		o.Past = h.history.view(v, feedKey{st.Name, st.ClientID}, st.Time)
	}
	if l.Returned > 0 {
		o.Expired = v.number(l.Returned)
	}
	for _, y := range l.Layouts {
		by := fmt.Sprintf("%s × %s", v.number(int64(y.Count)), v.t(y.Writers))
		if y.Layout != "" {
			by += " (" + y.Layout + ")"
		}
		o.By = append(o.By, by)
	}
	for _, g := range l.Grants(membersShown) {
		o.Members = append(o.Members, v.member(st.Time, g))
	}
	o.More = st.Count > int64(len(o.Members))
	for _, f := range l.Findings(h.to) {
		o.Findings = append(o.Findings, h.finding(v, f))
	}
	return o
}

func (v *pageView) member(now time.Time, g view.Grant) memberView {
	x := memberView{At: "–", Permits: v.number(int64(g.Permits)), Back: "–", By: v.t(g.Writers), Process: g.Process, What: v.t(g.What), Bytes: g.Bytes}
	if g.Granted != nil {
		x.At = g.Granted.Format("15:04:05.000")
		if age := now.Sub(*g.Granted); age > 12*time.Hour || age < -12*time.Hour {
			x.At = g.Granted.Format("2006-01-02 15:04:05")
		}
	}
	if g.BackInMS != nil {
		if x.Back = v.t("now"); *g.BackInMS > 0 {
			x.Back = survey.Brief(time.Duration(*g.BackInMS) * time.Millisecond)
		}
	}
	return x
}

// Expires says when a key expires.
func (v *pageView) Expires(ttl time.Duration) string {
	switch {
	case ttl == -1:
		return v.t("never")
	case ttl < 0:
		return "–"
	}
	return v.t("in %s", survey.Brief(ttl))
}

// finding returns a finding in the language of the page.
func (h *Handler) finding(v *pageView, f doctor.Finding) findingView {
	o := findingView{ID: f.Check, Check: v.check(f.Check), Severity: f.Severity.String(), Word: v.t(f.Severity.String()), Found: survey.Visible(survey.ShortNames(v.Say(f.FoundText))),
		Means: f.Means, Java: f.Java, Go: f.Go,
		Fix: survey.Visible(v.Say(f.FixText)), Who: shortName(f.Limiter)}
	if v.Lang == "zh" {
		e := chinese().Checks[f.Check]
		o.Means, o.Java, o.Go = chineseOr(f.Means, e.Means), chineseOr(f.Java, e.Java), chineseOr(f.Go, e.Go)
	}
	if o.Runs = len(f.Commands) == 1 && string(f.Commands[0]) == f.Fix; !o.Runs {
		o.Fix, o.Steps = survey.ShortNames(o.Fix), v.steps(f)
	}
	if f.Limiter != "" {
		o.Link = v.limiterLink(f.Limiter, f.Client)
	} else {
		o.Who = survey.Visible(f.Node)
	}
	if f.Client != "" {
		o.Who += " · " + shortName(f.Client)
	}
	return o
}

// A stepView is commands with when they are to be run.
type stepView struct {
	When     string // empty for at once
	Commands []doctor.Cmd
}

// steps returns the commands of a finding, with the condition and the wait that they have.
func (v *pageView) steps(f doctor.Finding) (list []stepView) {
	if len(f.Commands) > 0 {
		list = append(list, stepView{"", f.Commands})
	}
	steps := slices.Clone(f.Then)
	for _, a := range f.Alternatives {
		steps = append(steps, a)
		for _, s := range a.Then {
			s.If, s.IfText = a.If, a.IfText
			steps = append(steps, s)
		}
	}
	for _, s := range steps {
		when, after := survey.Visible(survey.ShortNames(v.Say(s.IfText))), survey.Exact(time.Duration(s.AfterMS)*time.Millisecond)
		switch {
		case s.If == "":
			when = v.t("after %s:", after)
		case s.AfterMS == 0:
			when = v.t("if %s:", when)
		default:
			when = v.t("if %s, after %s:", when, after)
		}
		list = append(list, stepView{when, s.Commands})
	}
	return list
}

// A limiterView is the page of a limiter.
type limiterView struct {
	*pageView
	Name, Client string
	Whole        string // the link to the limiter of a client
	Live         *liveView
	Commands     []doctor.Cmd
	Note         string // what they need, or why there are none
	Clients      []clientView
	MoreClients  bool
	Listed       bool   // clients were looked for
	ClientsError string // why they were not found
	ListClients  string // the link that looks for them
	Report       *reportView
	Check        string // the link to the whole examination
	Writes       bool
	Action       string
	Done         *changeView
}

type clientView struct {
	view.ClientCells
	Link string
}

func (h *Handler) serveLimiter(w http.ResponseWriter, r *http.Request) {
	v, q := h.view(r), r.URL.Query()
	name, client := q.Get("name"), q.Get("client")
	if name == "" {
		v.Title, v.Message = v.t("No limiter"), v.t("The address names no limiter.")
		h.render(w, http.StatusBadRequest, "message", v, v)
		return
	}
	lv := &limiterView{pageView: v, Name: survey.VisibleName(name), Client: survey.VisibleName(client)}
	v.Title = shortName(name)
	if client != "" {
		lv.Whole = v.limiterLink(name, "")
	}
	v.State = "state" + withQuery(v.query("name", name, "client", client))
	lv.Check = "limiter" + withQuery(v.query("name", name, "client", client, "check", "1"))
	lv.ListClients = "limiter" + withQuery(v.query("name", name, "clients", "1"))
	lv.Writes = h.mayDo
	lv.Action = "change" + withQuery(v.query("name", name, "client", client))
	lv.Done = h.changes.view(v, q.Get("done"), name)
	st, err := h.look(r.Context(), feedKey{name, client})
	status := http.StatusOK
	if err == nil {
		lv.Live = h.liveOf(v, st)
		if lv.Live.L.Absent && !st.HasValue && st.Count == 0 && len(st.Fields) == 0 {
			status = http.StatusNotFound
		}
	} else {
		status = http.StatusServiceUnavailable
	}
	if err == nil && client == "" && q.Get("clients") == "1" {
		lv.listClients(r.Context(), h, name, st)
	}
	if err == nil && q.Get("check") == "1" {
		lv.Report = h.examine(r.Context(), v, name)
	}
	to := h.to
	if err == nil {
		to = to.At(st.Node)
	}
	lv.Commands = slices.DeleteFunc(commands(to, name, client, lv.Live != nil && lv.Live.PerClient), func(c doctor.Cmd) bool { return c == doctor.NoCommand })
	if lv.Note = v.Say(to.Note()); len(lv.Commands) == 0 {
		lv.Note = v.t(doctor.NoCommand)
	}
	h.beginRound(false)
	v.noteHealth(h)
	h.render(w, status, "limiter", v, lv)
}

// commands are what somebody can copy to a terminal. Of a PER_CLIENT limiter without a client there is nothing to watch.
func commands(to doctor.Target, name, client string, perClient bool) []doctor.Cmd {
	names, of := []string{name}, []string(nil)
	if client != "" {
		of = []string{doctor.Flag("--client", client)}
	}
	if perClient {
		return []doctor.Cmd{to.Command("inspect", names, "--clients"), to.Command("doctor", names)}
	}
	return []doctor.Cmd{to.Command("inspect", names, append(of, "--members")...), to.Command("watch", names, of...),
		to.Command("peek", []string{name, "1"}, of...), to.Command("doctor", names)}
}

// listClients finds clients of a PER_CLIENT limiter.
func (lv *limiterView) listClients(ctx context.Context, h *Handler, name string, st *survey.State) {
	lv.Listed = true
	if !h.rounds.enter(ctx) {
		lv.ClientsError = lv.t("Somebody else looks at all keys at the moment. Try again soon.")
		return
	}
	defer h.rounds.leave()
	ctx, cancel := context.WithTimeout(ctx, clientsLimit)
	defer cancel()
	l := view.Of(st)
	if err := l.ReadClients(ctx, h.survey, mostClients); err != nil {
		lv.ClientsError = lv.t(survey.OneLine(err))
	}
	lv.MoreClients = l.More
	for _, x := range l.Clients {
		cells := x.ClientCells(lv.style())
		cells.ID = shortName(x.ClientID)
		lv.Clients = append(lv.Clients, clientView{cells, lv.limiterLink(name, x.ClientID)})
	}
}
