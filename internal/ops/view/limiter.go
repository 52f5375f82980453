// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// A Limiter is everything that is shown of a limiter, or of one client of it.
type Limiter struct {
	*survey.State
	Row
	Absent   bool // there is no hash; what else there is was left behind
	Rate     doctor.Text
	CoolDown doctor.Text // empty if there is none
	Takers   doctor.Text // who has the permits in use; empty if nobody has
	Layouts  []Layout
	Keys     []Key
	Fields   []Field
	Returned int64 // permits that have expired, for the next caller to reclaim
	Clients  []*Limiter
	More     bool // there are more clients
}

// process returns how a process is called, with where it connects from if that is known.
func (v *Limiter) process(tag uint16) doctor.Text {
	switch o, ok := v.State.Origins[tag]; {
	case ok && o.Name != "":
		return say("%04x, %s at %s", tag, survey.VisibleName(o.Name), survey.Visible(o.Host))
	case ok:
		return say("%04x at %s", tag, survey.Visible(o.Host))
	}
	return say("%04x", tag)
}

// A Key is a key of a limiter.
type Key struct {
	Role, Key, Type string
	Wrong           string // the type that it has to have, if it has another
	Holds           doctor.Text
	TTL             time.Duration // -1 for a key that does not expire, -2 for one that does not exist
}

// A Field is one of the hash.
type Field struct{ Name, Value string }

// A Layout is how many of the members have it.
type Layout struct {
	Count   int
	Writers string
	Layout  string // empty for what Go has marked
}

// roles are what the keys of a limiter are for.
var roles = [3]string{"hash", "permits left", "permits in use"}

// Of returns what is shown of a state.
func Of(st *survey.State) *Limiter {
	v := &Limiter{State: st, Row: RowOf(st.Limiter()), Absent: errors.Is(st.Problem, permit.ErrNotInitialized), Layouts: layoutsOf(st)}
	if st.Problem == nil {
		v.Rate, v.Takers = rateText(st.Rate), v.takers()
		_, v.Returned, _ = st.Sum()
		for _, m := range st.Members {
			if m.Mark() == 'w' { // a tripwire, which expires at once
				v.Returned -= int64(m.Permits)
			}
		}
	}
	if at := st.CoolDown(); !at.IsZero() {
		v.CoolDown = say("for another %s, until %s", survey.Brief(at.Sub(st.Time)), at.UTC().Format("2006-01-02 15:04:05Z"))
		if reopen := st.ReopenUntil(); reopen.After(at) {
			v.CoolDown = say("%s, then re-opens until %s", v.CoolDown, reopen.UTC().Format("15:04:05Z"))
		}
	}
	value := doctor.Word("none")
	if st.HasValue {
		value = doctor.Word(survey.VisibleName(st.Value))
	}
	holds := [3]doctor.Text{{}, value, doctor.Counted(st.Count, "member")}
	for i, role := range roles {
		if v.Is(PerClient) && i > 0 && st.Types[i] == "none" {
			continue
		}
		k := Key{Role: role, Key: survey.VisibleName(st.Keys[i]), Type: st.Types[i], Holds: holds[i], TTL: st.TTLs[i]}
		if want := survey.KeyTypes[i]; k.Type != want && k.Type != "none" {
			k.Wrong = want
		}
		v.Keys = append(v.Keys, k)
	}
	for _, name := range slices.Sorted(maps.Keys(st.Fields)) {
		v.Fields = append(v.Fields, Field{survey.VisibleName(name), survey.VisibleName(st.Fields[name])})
	}
	return v
}

// Nothing reports whether Redis holds nothing of the limiter.
func (v *Limiter) Nothing() bool {
	return v.Absent && v.Types == [3]string{"none", "none", "none"} && len(v.Clients) == 0
}

func rateText(r permit.Rate) doctor.Text {
	text := say("%s in any %s", doctor.Counted(r.Permits, "permit"), survey.Exact(r.Interval))
	text = say("%s, %s", text, doctor.Word(r.Type.String()))
	if r.MinGap > 0 {
		text = say("%s, at least %s between permits", text, survey.Exact(r.MinGap))
	}
	if r.KeepAlive > 0 {
		text = say("%s, kept for %s after the last call", text, survey.Exact(r.KeepAlive))
	}
	return text
}

// takers says who has the permits in use: each process of Go, the one with the most first, Java, and a cool-down. Of a large set it tells of
// those that were read, and of how many they are.
func (v *Limiter) takers() doctor.Text {
	h := v.State.Holders()
	slices.SortStableFunc(h.Processes, func(a, b survey.Process) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Permits, a.Permits))
	})
	const shown = 5
	var list []doctor.Text
	for i, p := range h.Processes {
		switch {
		case i == shown:
			list = append(list, say("%d more of Go", len(h.Processes)-i))
		case i > shown:
		case p.Waiting > 0:
			list = append(list, say("Go %s: %s, %d waiting", v.process(p.Tag), doctor.Counted(p.Permits, "permit"), p.Waiting))
		default:
			list = append(list, say("Go %s: %s", v.process(p.Tag), doctor.Counted(p.Permits, "permit")))
		}
	}
	if h.Java > 0 {
		list = append(list, say("Java: %s", doctor.Counted(h.Java, "permit")))
	}
	if h.CoolDown > 0 {
		list = append(list, say("a cool-down: %s", doctor.Counted(h.CoolDown, "permit")))
	}
	if h.Unknown > 0 {
		list = append(list, say("not known: %s", doctor.Counted(h.Unknown, "permit")))
	}
	if len(list) == 0 {
		return doctor.Text{}
	}
	all := doctor.Listed("; ", list)
	if !v.State.Whole {
		all = say("of the %d oldest and newest of %d grants: %s", len(v.State.Members), v.Count, all)
	}
	return all
}

// layoutsOf counts the members by layout.
func layoutsOf(st *survey.State) (list []Layout) {
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
			list = append(list, Layout{count[y], y.Writers(), y.String()})
		}
	}
	if marked > 0 {
		list = append(list, Layout{marked, survey.FastWriter, ""})
	}
	return list
}

// Findings returns what is wrong with v, as far as the state tells. Commands are about to.
func (v *Limiter) Findings(to doctor.Target) []doctor.Finding {
	list := []doctor.Finding{}
	clients := make([]*survey.State, len(v.Clients))
	for i, c := range v.Clients {
		clients[i] = c.State
	}
	for _, f := range doctor.Examine(to, v.State, clients...) {
		if f.Severity > doctor.Info {
			list = append(list, f)
		}
	}
	return list
}

// clientIDs returns the ids of clients: those that are known to wait, and all that have keys in Redis.
func (v *Limiter) clientIDs(ctx context.Context, s *survey.Survey) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, p := range v.State.Waiting().Processes {
			if !yield(p.Client, nil) {
				return
			}
		}
		for id, err := range s.Clients(ctx, v.State.Name) {
			if !yield(id, err) {
				return
			}
		}
	}
}

// ReadClients finds clients of the limiter, most at most: those that are known to wait, and the first ones that Redis has. What it has
// found before an error is kept. Those for which most callers wait come first.
func (v *Limiter) ReadClients(ctx context.Context, s *survey.Survey, most int) error {
	defer func() {
		slices.SortFunc(v.Clients, func(a, b *Limiter) int {
			return cmp.Or(cmp.Compare(b.Row.Waiting, a.Row.Waiting), strings.Compare(a.ClientID, b.ClientID))
		})
	}()
	read := map[string]bool{"": true}
	for id, err := range v.clientIDs(ctx, s) {
		if err != nil {
			return err
		}
		if read[id] {
			continue
		}
		read[id] = true
		st, err := s.Read(ctx, v.State.Name, id)
		switch {
		case err != nil:
			return err
		case !st.Shows(): // another program's
			continue
		case len(v.Clients) == most:
			v.More = true
			return nil
		}
		v.Clients = append(v.Clients, Of(st))
	}
	return nil
}

// A Grant is a member of the set as it is shown.
type Grant struct {
	Permits  uint32     `json:"permits"`
	Granted  *time.Time `json:"granted,omitempty"`    // absent for what is nobody's grant
	BackInMS *int64     `json:"back_in_ms,omitempty"` // 0 for what has expired; absent for what does not come back
	Layout   string     `json:"layout"`
	Writers  string     `json:"writers"`
	What     string     `json:"what,omitempty"`    // what it is, if it is not just a grant
	Process  string     `json:"process,omitempty"` // of Go: the two bytes with which its grants begin
	Bytes    string     `json:"bytes"`             // all of it, in hexadecimal
}

// Grants returns the members, the newest first, most at most.
func (v *Limiter) Grants(most int) (list []Grant) {
	for _, m := range slices.Backward(v.State.Members) {
		if len(list) == most {
			break
		}
		g := Grant{Permits: m.Permits, Layout: m.Layout().String(), Writers: m.Writers(), What: v.What(m), Bytes: hex.EncodeToString([]byte(m.Raw))}
		if at, ok := m.Granted(); ok {
			at = moment(at)
			g.Granted = &at
		}
		if tag, ok := m.Process(); ok {
			g.Process = hex.EncodeToString([]byte{byte(tag >> 8), byte(tag)})
		}
		if v.State.Problem == nil && m.Mark() != 'w' { // a tripwire is no permit that comes back
			back := int64(0)
			if !m.Expired(v.Time, v.State.Rate.Interval) {
				back = m.Time().Add(v.State.Rate.Interval).Sub(v.Time).Milliseconds()
			}
			g.BackInMS = &back
		}
		list = append(list, g)
	}
	return list
}

// A Detail is a limiter in JSON as rrl inspect writes it.
type Detail struct {
	Summary
	OneInstant bool              `json:"one_instant"` // all was read at one instant; otherwise the keys are in several slots
	Keys       []DetailKey       `json:"keys"`
	Fields     map[string]string `json:"fields"`                 // of the hash
	Value      *string           `json:"value_stored,omitempty"` // the permits left as they are stored
	Layouts    map[string]int    `json:"layouts"`                // members that were read, by layout
	Java       int64             `json:"used_by_java"`           // permits in use, of the members that were read
	Go         []DetailProcess   `json:"used_by_go"`
	Blocked    int64             `json:"used_by_cool_down"` // permits that a cool-down blocks, which count as in use until it ends
	Unknown    int64             `json:"used_by_unknown"`
	Findings   []doctor.Finding  `json:"findings"`
	Grants     []Grant           `json:"grants,omitempty"`  // with --members, newest first
	Clients    []Detail          `json:"clients,omitempty"` // with --clients
	More       bool              `json:"more_clients,omitempty"`
}

// A DetailKey is a key in JSON.
type DetailKey struct {
	Key   string `json:"key"`
	Role  string `json:"role"`
	Type  string `json:"type"`
	TTLMS int64  `json:"ttl_ms"` // -1 for a key that does not expire, -2 for one that does not exist
}

// A DetailProcess is a process of Go in JSON.
type DetailProcess struct {
	Process string `json:"process"`        // the two bytes with which its grants begin
	Name    string `json:"name,omitempty"` // of its connection, without the id, if that has the client's id
	Host    string `json:"host,omitempty"` // from which it connects, likewise
	Permits int64  `json:"permits"`        // in use
	Waiting int64  `json:"waiting"`        // callers
	AgeMS   int64  `json:"age_ms"`         // of that number
}

// Detail returns v in JSON, with grants at most.
func (v *Limiter) Detail(to doctor.Target, grants int) Detail {
	d := Detail{Summary: v.Summary(), OneInstant: v.OneInstant, Fields: v.State.Fields, Layouts: map[string]int{}, Go: []DetailProcess{}, Findings: v.Findings(to),
		Grants: v.Grants(grants), More: v.More}
	for i, role := range roles {
		k := DetailKey{v.State.Keys[i], role, v.Types[i], v.TTLs[i].Milliseconds()}
		if v.TTLs[i] < 0 {
			k.TTLMS = int64(v.TTLs[i])
		}
		d.Keys = append(d.Keys, k)
	}
	if v.HasValue {
		d.Value = &v.State.Value
	}
	for _, m := range v.State.Members {
		d.Layouts[m.Layout().String()]++
	}
	if v.State.Problem == nil {
		h := v.State.Holders()
		d.Java, d.Blocked, d.Unknown = h.Java, h.CoolDown, h.Unknown
		for _, p := range h.Processes {
			d.Go = append(d.Go, DetailProcess{hex.EncodeToString([]byte{byte(p.Tag >> 8), byte(p.Tag)}), v.State.Origins[p.Tag].Name, v.State.Origins[p.Tag].Host, p.Permits, p.Waiting, p.Age.Milliseconds()})
		}
	}
	for _, c := range v.Clients {
		d.Clients = append(d.Clients, c.Detail(to, 0))
	}
	return d
}
