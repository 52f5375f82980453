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
	"github.com/goredisson/ratelimiter/internal/ops/rights"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/urfave/cli/v3"
)

// The exit codes of doctor.
const (
	exitSick     = 1
	exitNoAccess = 2
)

func doctorCommand() *cli.Command {
	return liveCommand("doctor", "say what is wrong with a limiter, or with all of them, and how to fix it", "[NAME]",
		"Without a name it looks at the servers and at all limiters. Each finding says what it means, what it\n"+
			"does to callers in Java and in Go, and which command fixes it. docs/findings.md explains them.\n"+
			"Writes nothing, and needs no script.\n\n"+
			"What could not be looked at is printed with the reason. A server that does not reply takes a few seconds;\n"+
			"the others are looked at. Then the verdict is that it is not known, and --json has no field healthy.\n\n"+
			"Exit codes: 0 healthy, 1 findings that are at least a warning, 2 something could not be looked at,\n"+
			"whether or not there are findings, or wrong usage, 3 there is no such limiter, 4 Redis cannot be reached.",
		[]cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "without a name: only limiters whose names match `PATTERN`"},
			&cli.StringFlag{Name: "rules", Usage: "compare the rates with those of the rule file `FILE` too, as rrl diff does; limiters that are absent are for rrl diff"},
			&cli.StringFlag{Name: "app-user", Usage: "say what the ACL user `NAME` of the application lacks, by ACL DRYRUN (Redis 7 and Valkey)"},
			&cli.StringFlag{Name: "app-role", Value: rights.Administer.String(), Usage: "what the user of --app-user is to do: acquire, or administer, which is SetRate, UpdateRate, Release, Expire, LiftCoolDown, Delete and Clients besides"},
			&cli.IntFlag{Name: "max", Value: 10_000, Usage: "without a name: look at `N` limiters at most"},
			&cli.IntFlag{Name: "max-clients", Value: 100, Usage: "with a name: look at `N` clients of a PER_CLIENT limiter at most"},
			&cli.DurationFlag{Name: "sample", Value: time.Second, Usage: "with a name: for how long to watch for clocks that are slow; 0 for not at all"},
		}, runDoctor)
}

// A verdict is what doctor writes in JSON.
type verdict struct {
	Healthy *bool `json:"healthy,omitempty"` // absent if that is not known
	*doctor.Report
}

// writeVerdict writes a report as JSON.
func writeVerdict(out io.Writer, r *doctor.Report) error {
	o := verdict{nil, r}
	if !r.Blind() {
		healthy := !r.Sick()
		o.Healthy = &healthy
	}
	return term.EncodeJSON(out, o)
}

func runDoctor(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
	if c.NArg() > 1 {
		return command.Usage("doctor takes one name at most")
	}
	if c.Int("max") < 1 || c.Int("max-clients") < 1 || c.Duration("sample") < 0 {
		return command.Usage("--max and --max-clients are at least 1, --sample is not below 0")
	}
	role, err := appRole(c)
	if err != nil {
		return err
	}
	d := &doctor.Doctor{Survey: survey.New(rdb.UniversalClient), Nodes: rdb.nodes, To: &rdb.to, MaxClients: c.Int("max-clients"), Sample: c.Duration("sample")}
	var r *doctor.Report
	if path := c.String("rules"); path != "" {
		want, err := readWanted(path)
		if err != nil {
			return err
		}
		d.Drift = driftFrom(want, rdb.to)
	}
	name, err := firstName(c)
	if err == nil && c.Args().Present() && name == "" {
		err = command.Usage("doctor takes the name of a limiter, or none for all; this one is empty")
	}
	if err != nil {
		return err
	}
	user, note := c.String("app-user"), ""
	if name != "" {
		if r, err = d.Limiter(ctx, name); user != "" && isAbsent(err) { // the user is checked before the first call makes the limiter
			r, err = &doctor.Report{Findings: []doctor.Finding{}, Skipped: []doctor.Skip{}}, nil
			note = fmt.Sprintf("there is no limiter %q yet; only the rights of the user %q were looked at", permit.Shorten(name), user)
		}
	} else {
		if r, err = d.Servers(ctx); err != nil {
			return err
		}
		var all *doctor.Report
		if all, err = d.All(ctx, survey.Query{Match: c.String("match")}, c.Int("max"), nil); err == nil {
			r.Add(all)
		}
	}
	if err != nil {
		return err
	}
	if user != "" {
		access, err := d.Access(ctx, user, name, role)
		if err != nil {
			return err
		}
		r.Add(access)
	}
	if r.Note = r.Needs(rdb.to).String(); note != "" {
		r.Note = strings.TrimSuffix(note+"; "+r.Note, "; ")
	}
	out := c.Root().Writer
	if c.Bool("json") {
		if err := writeVerdict(out, r); err != nil {
			return err
		}
	} else {
		text := bufio.NewWriter(out) // which keeps the first error for Flush
		writeReport(text, r, c.Args().Present())
		if err := text.Flush(); err != nil {
			return command.Error{Code: exitNoAccess, Err: err} // nobody knows what was found
		}
	}
	switch {
	case r.Blind():
		return command.Error{Code: exitNoAccess}
	case r.Sick():
		return command.Error{Code: exitSick}
	}
	return nil
}

// appRole returns what the user of --app-user is to do.
func appRole(c *cli.Command) (rights.Role, error) {
	name := c.String("app-role")
	role, known := map[string]rights.Role{"acquire": rights.Acquire, "administer": rights.Administer}[name]
	switch {
	case !known:
		return 0, command.Usage("--app-role %q is neither acquire nor administer", name)
	case c.IsSet("app-role") && c.String("app-user") == "":
		return 0, command.Usage("--app-role is about the user that --app-user names")
	}
	return role, nil
}

// driftFrom returns a function for the doctor that compares a limiter with the limits of a file.
func driftFrom(want []*wanted, to doctor.Target) func(*survey.State) (string, permit.Rate, doctor.Cmd) {
	return func(st *survey.State) (string, permit.Rate, doctor.Cmd) {
		d := compareRate(want, to, st)
		if d == nil || d.What == "other" {
			return "", permit.Rate{}, ""
		}
		return fmt.Sprintf("Redis has %s; the file has %s", d.Redis, d.File), d.want, d.Fix
	}
}

// namesShown is how many limiters with the same finding are shown each.
const namesShown = 5

// writeReport writes the findings, the worst first. Those of one check of many limiters are put together.
func writeReport(out io.Writer, r *doctor.Report, one bool) {
	for _, group := range r.Groups() {
		f := group[0]
		fmt.Fprintf(out, "%s  %s\n", strings.ToUpper(f.Severity.String()), f.Check)
		for _, x := range group[:min(namesShown, len(group))] {
			who := visibleName(x.Limiter)
			if who == "" {
				who = "server " + visible(x.Node)
			}
			if x.Client != "" {
				who += ", client " + visibleName(x.Client)
			}
			fmt.Fprintf(out, "  %s: %s\n", who, visible(x.Found))
			if x.Fix != "" && x.Limiter != "" {
				fmt.Fprintf(out, "      fix: %s\n", visible(x.Fix))
			}
		}
		if n := len(group) - namesShown; n > 0 {
			fmt.Fprintf(out, "  and %d more; --json has all\n", n)
		}
		if f.Fix != "" && f.Limiter == "" {
			fmt.Fprintf(out, "      fix: %s\n", visible(f.Fix))
		}
		fmt.Fprintf(out, "    means: %s\n    Java:  %s\n    Go:    %s\n\n", f.Means, f.Java, f.Go)
	}
	if r.Note != "" {
		fmt.Fprintf(out, "%s\n\n", visible(r.Note))
	}
	for i, s := range r.Skipped {
		if i == 2*namesShown {
			fmt.Fprintf(out, "and %d more could not be looked at; --json has all\n", len(r.Skipped)-i)
			break
		}
		who := strings.Join(strings.Fields(s.Check+" "+visibleName(s.Limiter)+" "+visible(s.Node)), " ")
		fmt.Fprintf(out, "not looked at: %s: %s\n", who, visible(s.Why))
	}
	verdict := "healthy"
	switch {
	case r.Sick() && r.Blind():
		verdict = "not healthy, and not all could be looked at"
	case r.Sick():
		verdict = "not healthy"
	case r.Blind():
		verdict = "not known whether it is healthy, because not all could be looked at"
	}
	if one {
		fmt.Fprintln(out, verdict)
	} else {
		fmt.Fprintf(out, "%s; %s looked at\n", verdict, permit.Counted(r.Limiters, "limiter"))
	}
}
