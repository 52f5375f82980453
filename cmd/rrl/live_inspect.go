// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/doctor"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/urfave/cli/v3"
)

func inspectCommand() *cli.Command {
	return liveCommand("inspect", "show one limiter as it is in Redis", "NAME",
		"Reads the keys of the limiter at one instant: who is limited, by what, and for how long. Of a large\n"+
			"set of permits it reads the 500 oldest and the 500 newest members. Writes nothing, and needs no script.\n\n"+
			"Exit codes: 0 shown, 1 there is no such limiter or it cannot be read, 2 wrong usage.",
		[]cli.Flag{
			&cli.StringFlag{Name: "client", Usage: "the permits of the client with that `ID` of a PER_CLIENT limiter"},
			&cli.BoolFlag{Name: "clients", Usage: "also all clients of a PER_CLIENT limiter, which takes a SCAN of all keys"},
			&cli.BoolFlag{Name: "members", Usage: "also the grants, newest first"},
			&cli.IntFlag{Name: "limit", Value: 100, Usage: "show `N` clients and members at most"},
		},
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			name, err := onlyName(c)
			if err != nil {
				return err
			}
			if c.Int("limit") < 1 {
				return command.UsageError{Err: fmt.Errorf("--limit is at least 1")}
			}
			s := survey.New(rdb.UniversalClient)
			st, err := s.Read(ctx, name, c.String("client"))
			if err != nil {
				return err
			}
			v := &inspection{State: st, to: rdb.to}
			if c.Bool("clients") {
				if err := v.readClients(ctx, s, c.Int("limit")); err != nil {
					return err
				}
			}
			if nothingOf(st) && len(v.clients) == 0 {
				return absent(name, rdb)
			}
			if c.Bool("json") {
				return term.EncodeJSON(c.Root().Writer, v.json(c.Bool("members"), c.Int("limit")))
			}
			return v.write(c.Root().Writer, c.Bool("members"), c.Int("limit"))
		})
}

// An inspection is what inspect shows.
type inspection struct {
	*survey.State
	to      doctor.Target
	clients []*survey.State
	more    bool // there are more clients
	listed  bool // clients were asked for
}

func (v *inspection) readClients(ctx context.Context, s *survey.Survey, most int) error {
	v.listed = true
	for id, err := range s.Clients(ctx, v.Name) {
		if err != nil {
			return err
		}
		st, err := s.Read(ctx, v.Name, id)
		if err != nil {
			return err
		}
		if !st.Shows() {
			continue // another program's
		}
		if len(v.clients) == most {
			v.more = true
			break
		}
		v.clients = append(v.clients, st)
	}
	slices.SortFunc(v.clients, func(a, b *survey.State) int { return strings.Compare(a.ClientID, b.ClientID) })
	return nil
}

// layouts counts the members by layout.
func layoutsOf(st *survey.State) string {
	count, marked := map[wire.Layout]int{}, 0
	for _, m := range st.Members {
		if m.Writers() == survey.FastWriter {
			marked++
		} else {
			count[m.Layout()]++
		}
	}
	var parts []string
	for y := wire.LayoutUnknown; y <= wire.LayoutOurs; y++ {
		if count[y] > 0 {
			parts = append(parts, fmt.Sprintf("%d by %s (%s)", count[y], y.Writers(), y))
		}
	}
	if marked > 0 {
		parts = append(parts, fmt.Sprintf("%d by %s", marked, survey.FastWriter))
	}
	return strings.Join(parts, "; ")
}

func expires(ttl time.Duration) string {
	switch {
	case ttl == -1:
		return "does not expire"
	case ttl < 0:
		return "does not exist"
	}
	return "expires in " + brief(ttl)
}

// stands says how a caller that asks for one permit stands.
func stands(st *survey.State) string {
	pk, err := st.Peek(1)
	switch {
	case err != nil:
		return oneLine(err)
	case !pk.Known:
		return "not known: the set is too large"
	case pk.Wait > 0:
		return fmt.Sprintf("%d of %d; one permit takes %s, because of %s", pk.Available, st.Rate.Permits, brief(pk.Wait), pk.Why)
	}
	return fmt.Sprintf("%d of %d; one permit is granted at once", pk.Available, st.Rate.Permits)
}

func (v *inspection) perClient() bool {
	return v.Problem == nil && v.Rate.Type == permit.PerClient && v.ClientID == ""
}

func (v *inspection) write(out io.Writer, members bool, limit int) error {
	say := func(what, format string, args ...any) {
		fmt.Fprintf(out, "%-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	say("limiter", "%s", visible(v.Name))
	if v.ClientID != "" {
		say("client", "%s", visible(v.ClientID))
	}
	say("at", "%s by the clock of %s", v.Time.UTC().Format("2006-01-02 15:04:05.000Z"), visible(v.Node))
	switch {
	case isAbsent(v.Problem):
		say("rate", "none: the hash is gone, and what follows is left behind")
	case v.Problem != nil:
		say("rate", "%s", oneLine(v.Problem))
	default:
		text := fmt.Sprintf("%s in any %s, %s", survey.Counted(v.Rate.Permits, "permit"), survey.Exact(v.Rate.Interval), v.Rate.Type)
		if v.Rate.MinGap > 0 {
			text += ", at least " + survey.Exact(v.Rate.MinGap) + " between permits"
		}
		if v.Rate.KeepAlive > 0 {
			text += ", kept for " + survey.Exact(v.Rate.KeepAlive) + " after the last call"
		}
		say("rate", "%s", text)
	}
	if at := v.CoolDown(); !at.IsZero() {
		text := fmt.Sprintf("for another %s, until %s", brief(at.Sub(v.Time)), at.UTC().Format("2006-01-02 15:04:05Z"))
		if r := v.ReopenUntil(); r.After(at) {
			text += ", then re-opens until " + r.UTC().Format("15:04:05Z")
		}
		say("cool-down", "%s", text)
	}
	if v.perClient() {
		say("available", "each client has permits of its own: --clients lists them, --client ID shows one")
	} else if v.Problem == nil {
		say("available", "%s", stands(v.State))
	}
	say("hash", "%s  %s", visible(v.Keys[0]), expires(v.TTLs[0]))
	for _, f := range slices.Sorted(mapsKeys(v.Fields)) {
		say("", "%s = %s", visible(f), visible(v.Fields[f]))
	}
	if !v.perClient() || v.HasValue || v.Count > 0 {
		value := "none"
		if v.HasValue {
			value = visible(v.Value)
		}
		say("value", "%s = %s  %s", visible(v.Keys[1]), value, expires(v.TTLs[1]))
		say("permits", "%s  %s  %s", visible(v.Keys[2]), survey.Counted(v.Count, "member"), expires(v.TTLs[2]))
	}
	if text := layoutsOf(v.State); text != "" {
		if !v.Whole {
			text += fmt.Sprintf("; of the %d that were read", len(v.Members))
		}
		say("", "%s", text)
	}
	for i, want := range []string{"hash", "string", "zset"} {
		if typ := v.Types[i]; typ != want && typ != "none" {
			say("", "%s is a %s, which is not a key of a limiter", visible(v.Keys[i]), typ)
		}
	}
	for _, f := range doctor.Examine(v.to, v.State, v.clients...) {
		if f.Severity > doctor.Info {
			say(f.Severity.String(), "%s: %s; %s explains it", f.Check, visible(f.Found), visible(string(v.to.Command("doctor", []string{v.Name}))))
		}
	}
	if v.listed {
		fmt.Fprintln(out)
		if err := v.writeClients(out); err != nil {
			return err
		}
	}
	if members {
		fmt.Fprintln(out)
		return v.writeMembers(out, limit)
	}
	return nil
}

func (v *inspection) writeClients(out io.Writer) error {
	if len(v.clients) == 0 {
		_, err := fmt.Fprintln(out, "No client has permits of its own.")
		return err
	}
	t := &table{columns: []column{{head: "CLIENT"}, {head: "LEFT", right: true}, {head: "WAIT", right: true}, {head: "MEMBERS", right: true, drop: 3},
		{head: "LAST GRANT", right: true, drop: 1}, {head: "TTL", right: true, drop: 2}}}
	for _, st := range v.clients {
		left, wait, last := "-", "-", "-"
		if pk, err := st.Peek(1); err == nil && pk.Known {
			left, wait = fmt.Sprint(pk.Available), brief(pk.Wait)
		}
		if at, ok := st.LastGrant(); ok {
			last = brief(max(0, st.Time.Sub(at))) + " ago"
		}
		ttl := "-"
		if d := max(st.TTLs[1], st.TTLs[2]); d >= 0 {
			ttl = brief(d)
		}
		t.add(visible(st.ClientID), left, wait, fmt.Sprint(st.Count), last, ttl)
	}
	if err := t.write(out, terminalWidth(out)); err != nil {
		return err
	}
	if v.more {
		fmt.Fprintf(out, "There are more clients: --limit N shows more.\n")
	}
	return nil
}

func (v *inspection) writeMembers(out io.Writer, limit int) error {
	t := &table{columns: []column{{head: "GRANTED (UTC)"}, {head: "PERMITS", right: true}, {head: "BACK IN", right: true}, {head: "WRITTEN BY", drop: 3},
		{head: "WHAT", drop: 1}, {head: "BYTES", drop: 4}}}
	n := 0
	for _, m := range slices.Backward(v.Members) {
		if n++; n > limit {
			break
		}
		back := "-"
		if v.Problem == nil {
			if back = "now"; !m.Expired(v.Time, v.Rate.Interval) {
				back = brief(m.Time().Add(v.Rate.Interval).Sub(v.Time))
			}
		}
		granted := "-" // nobody's grant
		if at, ok := m.Granted(); ok {
			granted = at.UTC().Format("2006-01-02 15:04:05.000")
		}
		if m.Mark() == 'w' { // a tripwire is no permit that comes back
			back = "-"
		}
		t.add(granted, fmt.Sprint(m.Permits), back, m.Writers(), v.What(m), hex.EncodeToString([]byte(m.Raw)))
	}
	if err := t.write(out, terminalWidth(out)); err != nil {
		return err
	}
	if int64(limit) < v.Count {
		fmt.Fprintf(out, "and %d more: --limit N shows up to the newest 500.\n", v.Count-int64(limit))
	}
	return nil
}

// jsonState is what inspect writes with --json.
type jsonState struct {
	Name       string            `json:"name"`
	NameBase64 string            `json:"name_base64,omitempty"`
	Client     string            `json:"client,omitempty"`
	Node       string            `json:"node"`
	TimeMS     int64             `json:"time_ms"`
	OneInstant bool              `json:"one_instant"`
	Problem    string            `json:"problem,omitempty"`
	Type       string            `json:"type,omitempty"`
	Permits    int64             `json:"permits,omitempty"`
	IntervalMS int64             `json:"interval_ms,omitempty"`
	Available  *int64            `json:"available,omitempty"`
	WaitMS     *int64            `json:"wait_ms,omitempty"`
	WaitsFor   string            `json:"waits_for,omitempty"`
	CoolDown   *time.Time        `json:"cool_down_until,omitempty"`
	Hash       jsonKey           `json:"hash"`
	Fields     map[string]string `json:"fields"`
	Value      jsonKey           `json:"value"`
	Stored     *string           `json:"value_stored"`
	PermitsKey jsonKey           `json:"permits_key"`
	Members    int64             `json:"members"`
	Layouts    map[string]int    `json:"layouts"`
	Grants     []jsonMember      `json:"grants,omitempty"`  // with --members, newest first
	Clients    []jsonState       `json:"clients,omitempty"` // with --clients
	More       bool              `json:"more_clients,omitempty"`
}

type jsonKey struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	TTLMS int64  `json:"ttl_ms"` // -1 for a key that does not expire, -2 for one that does not exist
}

type jsonMember struct {
	Permits   uint32 `json:"permits"`
	GrantedMS int64  `json:"granted_ms"`
	Expired   bool   `json:"expired"`
	Layout    string `json:"layout"`
	Writers   string `json:"writers"`
	What      string `json:"what,omitempty"`
	Bytes     string `json:"bytes"`
}

func (v *inspection) json(members bool, limit int) jsonState {
	o := jsonState{Client: v.ClientID, Node: v.Node, TimeMS: v.Time.UnixMilli(), OneInstant: v.OneInstant, Fields: v.Fields,
		Members: v.Count, Layouts: map[string]int{}, More: v.more}
	o.Name, o.NameBase64 = jsonName(v.Name)
	for i, k := range []*jsonKey{&o.Hash, &o.Value, &o.PermitsKey} {
		k.Key, k.Type, k.TTLMS = v.Keys[i], v.Types[i], v.TTLs[i].Milliseconds()
		if v.TTLs[i] < 0 {
			k.TTLMS = int64(v.TTLs[i])
		}
	}
	if v.HasValue {
		o.Stored = &v.Value
	}
	if v.Problem != nil {
		o.Problem = oneLine(v.Problem)
	} else {
		o.Type, o.Permits, o.IntervalMS = v.Rate.Type.String(), v.Rate.Permits, v.Rate.Interval.Milliseconds()
		if pk, err := v.Peek(1); err == nil && pk.Known && !v.perClient() {
			wait := roundUp(pk.Wait)
			o.Available, o.WaitMS, o.WaitsFor = &pk.Available, &wait, pk.Why
		}
	}
	if at := v.CoolDown(); !at.IsZero() {
		at = at.UTC()
		o.CoolDown = &at
	}
	for _, m := range v.State.Members {
		o.Layouts[m.Layout().String()]++
	}
	for _, m := range slices.Backward(v.State.Members) {
		if !members || len(o.Grants) == limit {
			break
		}
		o.Grants = append(o.Grants, jsonMember{m.Permits, m.Time().UnixMilli(), v.Problem == nil && m.Expired(v.Time, v.Rate.Interval),
			m.Layout().String(), m.Writers(), v.What(m), hex.EncodeToString([]byte(m.Raw))})
	}
	for _, st := range v.clients {
		o.Clients = append(o.Clients, (&inspection{State: st}).json(false, 0))
	}
	return o
}
