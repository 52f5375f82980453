// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/rivo/uniseg"
	"github.com/urfave/cli/v3"
)

func lsCommand() *cli.Command {
	return liveCommand("ls", "list the limiters of a Redis, those that hurt most first", " ",
		"Looks at all keys of every master with SCAN, in steps, and shows the limiters among them: first those\n"+
			"where calls fail, then those where callers wait, by how many wait and for how many intervals, then cool-downs,\n"+
			"other limits, and used-up quotas, whose interval is an hour or longer. --sort found shows them as they are found.\n\n"+
			"GRANTED/S is the average of the last interval. WAITING counts the callers of Go that wait; those of Java leave\n"+
			"no trace in Redis. WAIT is how long a new caller waits for one permit, about, behind them. A PER_CLIENT limiter\n"+
			"has permits for each client, so inspect --clients shows USED and WAIT; WAITING and a cool-down are those of all. At a\n"+
			"limiter that is stuck, callers of Redisson fail until Go, or rrl heal, has made it whole; where it says fails, every\n"+
			"call fails, and rrl doctor says why. The last line sums up. A name of more than 120 characters is cut.\n\n"+
			"With --json each line is a limiter, with its whole name. Writes nothing, and needs no script.\n\n"+
			"Exit codes: 0 all limiters were looked at, 1 something could not be looked at, "+exitCodes,
		[]cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "only names that match `PATTERN`: * any text, ? one character, [ab] one of these"},
			sortFlag("; or found"),
			&cli.IntFlag{Name: "limit", Value: 100, Usage: "show `N` limiters at most; 0 for all. On a terminal the default is what fits"},
			&cli.BoolFlag{Name: "waiting", Usage: "only limiters where a caller that asks for one permit does not get it at the moment"},
			&cli.BoolFlag{Name: "remains", Usage: "also permits whose limiter is gone"},
			&cli.Int64Flag{Name: "max-keys", Usage: "give up after looking at `N` keys; 0 for never"},
		},
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if c.Int("limit") < 0 || c.Int64("max-keys") < 0 {
				return command.Usage("--limit and --max-keys are not below 0")
			}
			l := &lister{out: c.Root().Writer, asJSON: c.Bool("json"), limit: c.Int("limit"), waiting: c.Bool("waiting"), where: rdb.where}
			if c.String("sort") != "found" {
				var err error
				if l.by, err = orderOf(c); err != nil {
					return err
				}
			}
			if high := term.Height(l.out); high > 0 && !c.IsSet("limit") && !l.asJSON {
				l.high, l.limit = high, max(leastRows, high-5)
			}
			return l.run(ctx, survey.New(rdb.UniversalClient), survey.Query{Match: c.String("match"), Remains: c.Bool("remains"), MaxKeys: c.Int64("max-keys")})
		})
}

// A lister writes a list of limiters.
type lister struct {
	out     io.Writer
	asJSON  bool
	limit   int
	high    int // the lines of a terminal, if it sets the limit
	waiting bool
	by      view.Order // nil for the order in which they are found
	where   string
}

const (
	leastRows    = 5 // that are shown, however low the terminal is
	thereAreMore = "There are more: --limit 0 lists all, --match some."
)

// linesOf returns how many lines a text takes of a terminal.
func linesOf(text string, width int) int {
	if width <= 0 {
		return 1
	}
	return max(1, (uniseg.StringWidth(text)+width-1)/width)
}

// pageRows is after how many rows of a long list the rows so far are written.
const pageRows = 200

func (l *lister) run(ctx context.Context, s *survey.Survey, q survey.Query) error {
	var sum summing
	var list []view.Row
	n, more, errs := 0, false, []error(nil)
	t := newLimiterTable()
	show := func(r *view.Row) error {
		n++
		if l.asJSON {
			return term.EncodeJSON(l.out, r.Summary())
		}
		addLimiter(t, r)
		if len(t.rows) == pageRows {
			if err := t.write(l.out, term.Width(l.out)); err != nil {
				return err
			}
			t = newLimiterTable()
		}
		return nil
	}
	for lim, err := range s.Find(ctx, q) {
		if err != nil {
			if ctx.Err() != nil {
				return command.ErrInterrupted
			}
			errs = append(errs, err)
			continue
		}
		r := view.RowOf(lim)
		if l.waiting && !r.Is(view.Limited|view.Queue) {
			continue
		}
		if more = l.by == nil && l.limit > 0 && n == l.limit; more {
			break
		}
		sum.add(&r)
		if l.by != nil {
			list = append(list, r)
		} else if err := show(&r); err != nil {
			return err
		}
	}
	if l.by != nil {
		view.Sort(list, l.by)
		if l.high > 0 { // the heads, a blank line, and the line where the cursor is
			width := term.Width(l.out)
			l.limit = max(leastRows, l.high-3-linesOf(sum.line(visible(l.where)), width))
			if len(list) > l.limit {
				l.limit = max(leastRows, l.limit-linesOf(thereAreMore, width))
			}
		}
		if more = l.limit > 0 && len(list) > l.limit; more {
			list = list[:l.limit]
		}
		for i := range list {
			if err := show(&list[i]); err != nil {
				return err
			}
		}
	}
	if !l.asJSON {
		if len(t.rows) > 0 {
			if err := t.write(l.out, term.Width(l.out)); err != nil {
				return err
			}
		}
		if n > 0 {
			fmt.Fprintf(l.out, "\n%s\n", sum.line(visible(l.where)))
		} else if len(errs) == 0 && q.Match == "" {
			fmt.Fprintf(l.out, "There are no limiters in %s.\n", visible(l.where))
		} else if len(errs) == 0 {
			fmt.Fprintf(l.out, "No name of a limiter in %s matches %s.\n", visible(l.where), visible(q.Match))
		}
		if more {
			fmt.Fprintln(l.out, thereAreMore)
		}
	}
	if len(errs) > 0 {
		return command.Error{Code: command.ExitFailed, Err: fmt.Errorf("the list is not complete: %w", errors.Join(errs...))}
	}
	return nil
}

func sortFlag(more string) *cli.StringFlag {
	return &cli.StringFlag{Name: "sort", Value: "harm", Usage: "sort by `COLUMN`: " + strings.Join(slices.Sorted(maps.Keys(view.Orders)), ", ") + more}
}

// orderOf returns the order of the flag.
func orderOf(c *cli.Command) (view.Order, error) {
	by, ok := view.Orders[c.String("sort")]
	if !ok {
		return nil, command.Usage("--sort %q is none of %s", c.String("sort"), strings.Join(slices.Sorted(maps.Keys(view.Orders)), ", "))
	}
	return by, nil
}

// A summing counts limiters for the line that sums them up.
type summing struct {
	all, limited, stuck, cooling, malformed, quotas, remains int
	waiting                                                  int64
}

func (s *summing) add(r *view.Row) {
	switch {
	case r.Kind == survey.Remains:
		s.remains++
		return
	case r.Kind != survey.Live:
		return
	}
	s.all++
	s.waiting += r.Waiting
	switch {
	case r.Is(view.Malformed):
		s.malformed++
	case r.Is(view.Stuck):
		s.stuck++
	case r.Is(view.Cooling):
		s.cooling++
	case r.Is(view.Limited) && r.Is(view.Quota):
		s.quotas++
	case r.Is(view.Limited):
		s.limited++
	}
}

// line returns the counts that are not 0, with that of the limiters first.
func (s *summing) line(where string) string {
	text := permit.Counted(s.all, "limiter")
	if s.remains > 0 {
		text += fmt.Sprintf(", and what %d more have left behind,", s.remains)
	}
	text += " in " + where
	separator := ": "
	for _, c := range []struct {
		n    int
		what string
	}{{int(s.waiting), permit.Counted(s.waiting, "caller") + " waiting"}, {s.limited, fmt.Sprint(s.limited, " limited now")}, {s.quotas, permit.Counted(s.quotas, "quota") + " used up"},
		{s.cooling, fmt.Sprint(s.cooling, " in a cool-down")}, {s.stuck, fmt.Sprint(s.stuck, " stuck")}, {s.malformed, fmt.Sprint(s.malformed, " malformed")}} {
		if c.n > 0 {
			text += separator + c.what
			separator = ", "
		}
	}
	return text
}

func newLimiterTable() *table {
	return &table{columns: []column{{head: "NAME"}, {head: "TYPE", drop: 6}, {head: "RATE", right: true}, {head: "GRANTED/S", right: true, drop: 3}, {head: "USED", right: true, drop: 1},
		{head: "WAITING", right: true}, {head: "WAIT", right: true}, {head: "COOL-DOWN", right: true, drop: 2}, {head: "TTL", right: true, drop: 5},
		{head: "MEMBERS", right: true, drop: 7}, {head: "BY", drop: 4}, {head: "NODE", drop: 8}}}
}

// plain is how tables on terminals write.
var plain = view.Style{None: "-", Number: func(n int64) string { return fmt.Sprint(n) }, Word: fmt.Sprintf}

func addLimiter(t *table, r *view.Row) {
	c := r.Cells(plain)
	t.add(c.Name, c.Type, c.Rate, c.Granted, c.Used, c.Waiting, c.Wait, c.CoolDown, c.TTL, c.Members, c.By, c.Node)
}
