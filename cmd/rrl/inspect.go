// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/urfave/cli/v3"
)

func inspectCommand() *cli.Command {
	return liveCommand("inspect", "show one limiter as it is in Redis", "NAME",
		"Reads the keys of the limiter at one instant: who is limited, by what, and for how long, who waits, and who\n"+
			"has the permits in use. Of a large set of permits it reads the 500 oldest and the 500 newest members. Writes\n"+
			"nothing, and needs no script.\n\n"+
			"Exit codes: 0 shown, 1 it cannot be read, "+exitCodes,
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
				return command.Usage("--limit is at least 1")
			}
			s := survey.New(rdb.UniversalClient)
			st, err := s.Read(ctx, name, c.String("client"))
			if err != nil {
				return err
			}
			s.Locate(ctx, st)
			v, members := view.Of(st), 0
			if c.Bool("clients") {
				if err := v.ReadClients(ctx, s, c.Int("limit")); err != nil {
					return err
				}
			}
			if v.Nothing() {
				return absent(name, rdb)
			}
			if c.Bool("members") {
				members = c.Int("limit")
			}
			if c.Bool("json") {
				return term.EncodeJSON(c.Root().Writer, v.Detail(rdb.to, members))
			}
			out := bufio.NewWriter(c.Root().Writer) // which keeps the first error for Flush
			if err := (&inspection{v, rdb.to, out, term.Width(c.Root().Writer)}).write(c.Bool("clients"), members); err != nil {
				return err
			}
			return out.Flush()
		})
}

// An inspection writes a limiter for people.
type inspection struct {
	*view.Limiter
	to    doctor.Target
	out   io.Writer
	width int // of a line; 0 for any
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

// left says what is left of the permits, if that is known.
func left(r *view.Row) string {
	if r.Available == survey.Unknown {
		return ""
	}
	return fmt.Sprintf("%d of %d; ", r.Available, r.Rate.Permits)
}

func (v *inspection) write(clients bool, members int) error {
	say := func(what, format string, args ...any) {
		fmt.Fprintf(v.out, "%-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	say("limiter", "%s", visibleName(v.State.Name))
	if v.ClientID != "" {
		say("client", "%s", visibleName(v.ClientID))
	}
	say("at", "%s by the clock of %s", v.Time.UTC().Format("2006-01-02 15:04:05.000Z"), visible(v.State.Node))
	switch {
	case v.Absent:
		say("rate", "none: the hash is gone, and what follows is left behind")
	case v.State.Problem != nil:
		say("rate", "%s", oneLine(v.State.Problem))
	default:
		say("rate", "%s", v.Rate)
	}
	if text := v.CoolDown.String(); text != "" {
		say("cool-down", "%s", text)
	}
	switch {
	case v.Is(view.PerClient):
		say("available", "%s: --clients lists them, --client ID shows one", v.Headline())
	case !v.Absent && v.State.Problem == nil:
		say("available", "%s%s", left(&v.Row), v.Headline())
	}
	if text := v.Takers.String(); text != "" {
		say("in use by", "%s", text)
	}
	for i, k := range v.Keys {
		holds := k.Holds.String()
		if i == 1 {
			holds = "= " + holds
		}
		say([...]string{"hash", "value", "permits"}[i], "%s", strings.Join(strings.Fields(k.Key+" "+holds), " ")+"  "+expires(k.TTL))
		if k.Wrong != "" {
			say("", "%s is a %s, which is not a key of a limiter", k.Key, k.Type)
		}
		for _, f := range v.Fields {
			if i == 0 {
				say("", "%s = %s", f.Name, f.Value)
			}
		}
	}
	var parts []string
	for _, y := range v.Layouts {
		part := fmt.Sprintf("%d by %s", y.Count, y.Writers)
		if y.Layout != "" {
			part += " (" + y.Layout + ")"
		}
		parts = append(parts, part)
	}
	if n := len(v.State.Members); n > 0 && !v.Whole {
		parts = append(parts, fmt.Sprintf("of the %d that were read", n))
	}
	if len(parts) > 0 {
		say("", "%s", strings.Join(parts, "; "))
	}
	for _, f := range v.Findings(v.to) {
		say(f.Severity.String(), "%s: %s; %s explains it", f.Check, visible(f.Found), visible(string(v.to.Command("doctor", []string{v.State.Name}))))
	}
	if clients {
		if err := v.writeClients(); err != nil {
			return err
		}
	}
	if members > 0 {
		return v.writeMembers(members)
	}
	return nil
}

func (v *inspection) writeClients() error {
	fmt.Fprintln(v.out)
	if len(v.Clients) == 0 {
		_, err := fmt.Fprintln(v.out, "No client has permits of its own.")
		return err
	}
	t := &table{columns: []column{{head: "CLIENT"}, {head: "LEFT", right: true}, {head: "WAITING", right: true}, {head: "WAIT", right: true}, {head: "MEMBERS", right: true, drop: 3},
		{head: "LAST GRANT", right: true, drop: 1}, {head: "TTL", right: true, drop: 2}}}
	for _, c := range v.Clients {
		x := c.ClientCells(plain)
		t.add(x.ID, x.Left, x.Waiting, x.Wait, x.Members, x.Last, x.TTL)
	}
	if err := t.write(v.out, v.width); err != nil {
		return err
	}
	if v.More {
		fmt.Fprintf(v.out, "There are more clients: --limit N shows more.\n")
	}
	return nil
}

func (v *inspection) writeMembers(limit int) error {
	fmt.Fprintln(v.out)
	t := &table{columns: []column{{head: "GRANTED (UTC)"}, {head: "PERMITS", right: true}, {head: "BACK IN", right: true}, {head: "WRITTEN BY", drop: 3},
		{head: "WHAT", drop: 1}, {head: "BYTES", drop: 4}}}
	for _, g := range v.Limiter.Grants(limit) {
		granted, back := "-", "-" // nobody's grant; a tripwire, which is no permit that comes back
		if g.Granted != nil {
			granted = g.Granted.Format("2006-01-02 15:04:05.000")
		}
		if g.BackInMS != nil {
			if back = "now"; *g.BackInMS > 0 {
				back = brief(time.Duration(*g.BackInMS) * time.Millisecond)
			}
		}
		t.add(granted, fmt.Sprint(g.Permits), back, strings.TrimSpace(g.Writers+" "+g.Process), g.What, g.Bytes)
	}
	if err := t.write(v.out, v.width); err != nil {
		return err
	}
	if int64(limit) < v.Count {
		fmt.Fprintf(v.out, "and %d more: --limit N shows up to the newest 500.\n", v.Count-int64(limit))
	}
	return nil
}
