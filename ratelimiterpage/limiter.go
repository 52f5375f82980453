// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/doctor"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/goredisson/ratelimiter/wire"
)

const (
	membersShown = 20
	mostClients  = 100
	// clientsLimit is how long the search for the clients of a limiter may take, which looks at all keys.
	clientsLimit = 10 * time.Second
)

// A liveView is the part of a limiter's page that moves.
type liveView struct {
	*view
	At, Node     string
	Problem      string
	Absent       bool
	PerClient    bool // and this is not the page of a client
	RateText     string
	Left, Rate   string
	Known        bool
	Unknown      string // why it is not known what is left
	Used         int    // of the rate, in percent
	Wait, Why    string
	Cool, Reopen string
	Keys         []keyView
	Fields       []fieldView
	Count        string
	Expired      string // members that the next caller reclaims
	Timeline     *timelineView
	Members      []memberView
	MoreMembers  bool
	By           []string
	Findings     []findingView
	OneInstant   bool
}

type keyView struct{ Role, Key, Type, Wrong, Holds, TTL string }

type fieldView struct{ Name, Value string }

type memberView struct{ At, Permits, Back, By, What, Bytes string }

type findingView struct {
	ID, Check, Severity, Word              string
	Who, Link, Found, Means, Java, Go, Fix string
	Runs                                   bool         // Fix is a command
	Commands                               []doctor.Cmd // that Fix has, if it is more than one
}

// liveOf returns what the page shows of a state.
func (h *Handler) liveOf(v *view, st *survey.State) *liveView {
	o := &liveView{view: v, At: v.clock(st.Time), Node: survey.Visible(st.Node), Count: v.number(st.Count), OneInstant: st.OneInstant}
	switch {
	case errors.Is(st.Problem, permit.ErrNotInitialized):
		o.Absent = true
	case st.Problem != nil:
		o.Problem = survey.OneLine(st.Problem)
	default:
		o.PerClient = st.Rate.Type == permit.PerClient && st.ClientID == ""
		o.rate(st)
	}
	if at := st.CoolDown(); !at.IsZero() {
		o.Cool = survey.Brief(at.Sub(st.Time))
		if r := st.ReopenUntil(); r.After(at) {
			o.Reopen = v.clock(r)
		}
	}
	o.keys(st)
	if !o.PerClient && st.Problem == nil {
		o.Timeline = timelineOf(v, st)
	}
	if _, expired, ok := st.Sum(); ok && st.Problem == nil {
		for _, m := range st.Members {
			if m.Mark() == 'w' { // a tripwire, which expires at once
				expired -= int64(m.Permits)
			}
		}
		if expired > 0 {
			o.Expired = v.number(expired)
		}
	}
	o.members(st)
	for _, f := range doctor.Examine(h.to, st) {
		if f.Severity > doctor.Info {
			o.Findings = append(o.Findings, h.finding(v, f))
		}
	}
	return o
}

func (o *liveView) rate(st *survey.State) {
	r := st.Rate
	o.RateText = o.t("%s permits in any %s", o.number(r.Permits), survey.Exact(r.Interval))
	if r.MinGap > 0 {
		o.RateText += o.t(", at least %s between permits", survey.Exact(r.MinGap))
	}
	if r.KeepAlive > 0 {
		o.RateText += o.t(", kept for %s after the last call", survey.Exact(r.KeepAlive))
	}
	o.Rate = o.number(r.Permits)
	if o.PerClient {
		return
	}
	pk, err := st.Peek(1)
	if err != nil || !pk.Known {
		if o.Unknown = o.t("not known: the set is too large"); errors.Is(err, survey.ErrWrongType) {
			o.Unknown = o.t("not known: a key is of the wrong type, and calls fail")
		} else if err != nil {
			o.Unknown = survey.OneLine(err)
		}
		return
	}
	o.Known, o.Left = true, o.number(pk.Available)
	o.Used = int(100 * (r.Permits - pk.Available) / max(1, r.Permits))
	if pk.Wait > 0 {
		o.Wait, o.Why = survey.Brief(pk.Wait), o.t(pk.Why)
	}
}

func (o *liveView) keys(st *survey.State) {
	value := o.t("none")
	if st.HasValue {
		value = survey.Visible(st.Value)
	}
	holds := []string{"", value, o.t("%s members", o.Count)}
	for i, role := range []string{o.t("hash"), o.t("permits left"), o.t("permits in use")} {
		if o.PerClient && i > 0 && st.Types[i] == "none" {
			continue
		}
		k := keyView{Role: role, Key: survey.Visible(st.Keys[i]), Type: st.Types[i], Holds: holds[i], TTL: o.expires(st.TTLs[i])}
		if want := []string{"hash", "string", "zset"}[i]; k.Type != want && k.Type != "none" {
			k.Wrong = want
		}
		o.Keys = append(o.Keys, k)
	}
	names := make([]string, 0, len(st.Fields))
	for name := range st.Fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		o.Fields = append(o.Fields, fieldView{survey.Visible(name), survey.Visible(st.Fields[name])})
	}
}

// expires says when a key expires.
func (v *view) expires(ttl time.Duration) string {
	switch {
	case ttl == -1:
		return v.t("never")
	case ttl < 0:
		return "–"
	}
	return v.t("in %s", survey.Brief(ttl))
}

func (o *liveView) members(st *survey.State) {
	count, marked := map[wire.Layout]int{}, 0
	for _, m := range st.Members {
		if m.Writers() == survey.FastWriter {
			marked++
		} else {
			count[m.Layout()]++
		}
	}
	for y := wire.LayoutUnknown; y <= wire.LayoutOurs; y++ {
		if count[y] > 0 {
			o.By = append(o.By, fmt.Sprintf("%s × %s (%s)", o.number(int64(count[y])), o.t(y.Writers()), y))
		}
	}
	if marked > 0 {
		o.By = append(o.By, fmt.Sprintf("%s × %s", o.number(int64(marked)), o.t(survey.FastWriter)))
	}
	for _, m := range slices.Backward(st.Members) {
		if len(o.Members) == membersShown {
			break
		}
		x := memberView{At: "–", Permits: o.number(int64(m.Permits)), Back: "–", By: o.t(m.Writers()),
			What: o.t(st.What(m)), Bytes: hex.EncodeToString([]byte(m.Raw))}
		if at, ok := m.Granted(); ok {
			x.At = at.UTC().Format("15:04:05.000")
			if age := st.Time.Sub(at); age > 12*time.Hour || age < -12*time.Hour {
				x.At = at.UTC().Format("2006-01-02 15:04:05")
			}
		}
		if st.Problem == nil && m.Mark() != 'w' { // a tripwire is no permit that comes back
			if x.Back = o.t("now"); !m.Expired(st.Time, st.Rate.Interval) {
				x.Back = survey.Brief(m.Time().Add(st.Rate.Interval).Sub(st.Time))
			}
		}
		o.Members = append(o.Members, x)
	}
	o.MoreMembers = st.Count > int64(len(o.Members))
}

// finding returns a finding in the language of the page.
func (h *Handler) finding(v *view, f doctor.Finding) findingView {
	e := explained[f.Check]
	o := findingView{ID: f.Check, Check: v.check(f.Check), Severity: f.Severity.String(), Word: v.t(f.Severity.String()), Found: survey.Visible(v.said(f.Found, f.FoundText)),
		Means: v.explained(f.Means, e.means), Java: v.explained(f.Java, e.java), Go: v.explained(f.Go, e.golang),
		Fix: survey.Visible(v.said(f.Fix, f.FixText)), Who: survey.Visible(f.Limiter)}
	if o.Runs = len(f.Commands) == 1 && string(f.Commands[0]) == f.Fix; !o.Runs {
		o.Commands = f.Commands
	}
	if f.Limiter != "" {
		o.Link = v.limiterLink(f.Limiter, f.Client)
	} else {
		o.Who = survey.Visible(f.Node)
	}
	if f.Client != "" {
		o.Who += " · " + survey.Visible(f.Client)
	}
	return o
}

// A limiterView is the page of a limiter.
type limiterView struct {
	*view
	Name, Client string
	Whole        string // the link to the limiter of a client
	Live         *liveView
	Commands     []doctor.Cmd
	Note         string // what they need
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

type clientView struct{ ID, Link, Left, Wait, Members, Last, TTL string }

func (h *Handler) serveLimiter(w http.ResponseWriter, r *http.Request) {
	v, q := h.view(r), r.URL.Query()
	name, client := q.Get("name"), q.Get("client")
	if name == "" {
		v.Title, v.Message = v.t("No limiter"), v.t("The address names no limiter.")
		h.render(w, http.StatusBadRequest, "message", v, v)
		return
	}
	lv := &limiterView{view: v, Name: survey.Visible(name), Client: survey.Visible(client)}
	v.Title = lv.Name
	if client != "" {
		lv.Whole = v.limiterLink(name, "")
	}
	v.Events = "events" + withQuery(v.query("name", name, "client", client))
	lv.Check = "limiter" + withQuery(v.query("name", name, "client", client, "check", "1"))
	lv.ListClients = "limiter" + withQuery(v.query("name", name, "clients", "1"))
	lv.Writes = h.mayDo
	lv.Action = "change" + withQuery(v.query("name", name, "client", client))
	lv.Done = h.changes.view(v, q.Get("done"), name)
	st, err := h.look(r.Context(), feedKey{name, client})
	status := http.StatusOK
	if err == nil {
		lv.Live = h.liveOf(v, st)
		if lv.Live.Absent && !st.HasValue && st.Count == 0 && len(st.Fields) == 0 {
			status = http.StatusNotFound
		}
	} else {
		status = http.StatusServiceUnavailable
	}
	if err == nil && client == "" && q.Get("clients") == "1" {
		lv.listClients(r.Context(), h, name)
	}
	if err == nil && q.Get("check") == "1" {
		lv.Report = h.examine(r.Context(), v, name)
	}
	to := h.to
	if err == nil {
		to = to.At(st.Node)
	}
	lv.Commands = commands(to, name, client, lv.Live != nil && lv.Live.PerClient)
	lv.Note = v.said(to.Note().String(), to.Note())
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
func (lv *limiterView) listClients(ctx context.Context, h *Handler, name string) {
	lv.Listed = true
	if !h.rounds.enter(ctx) {
		lv.ClientsError = lv.t("Somebody else looks at all keys at the moment. Try again soon.")
		return
	}
	defer h.rounds.leave()
	ctx, cancel := context.WithTimeout(ctx, clientsLimit)
	defer cancel()
	for id, err := range h.survey.Clients(ctx, name) {
		if err != nil {
			lv.ClientsError = survey.OneLine(err)
			break
		}
		st, err := h.survey.Read(ctx, name, id)
		if err != nil {
			lv.ClientsError = survey.OneLine(err)
			break
		}
		if !st.Shows() {
			continue // another program's
		}
		if len(lv.Clients) == mostClients {
			lv.MoreClients = true
			break
		}
		c := clientView{ID: survey.Visible(id), Link: lv.limiterLink(name, id), Left: "–", Wait: "–", Last: "–", Members: lv.number(st.Count), TTL: "–"}
		if pk, err := st.Peek(1); err == nil && pk.Known {
			c.Left, c.Wait = lv.number(pk.Available), survey.Brief(pk.Wait)
		}
		if at, ok := st.LastGrant(); ok {
			c.Last = lv.t("%s ago", survey.Brief(max(0, st.Time.Sub(at))))
		}
		if ttl := max(st.TTLs[1], st.TTLs[2]); ttl >= 0 {
			c.TTL = survey.Brief(ttl)
		}
		lv.Clients = append(lv.Clients, c)
	}
	slices.SortFunc(lv.Clients, func(a, b clientView) int { return strings.Compare(a.ID, b.ID) })
}
