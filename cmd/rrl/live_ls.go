// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/urfave/cli/v3"
)

func lsCommand() *cli.Command {
	return liveCommand("ls", "list the limiters of a Redis", " ",
		"Looks at the keys of every master with SCAN, in steps of 200, and shows the limiters among them. The\n"+
			"order is that in which Redis has them, or that of --sort. WAIT is how long a caller that asks for one\n"+
			"permit waits, as peek says. A PER_CLIENT limiter has permits for each client, so USED and WAIT are those of\n"+
			"inspect --clients; a cool-down is that of all. At a limiter that is stuck, callers of Redisson fail until Go,\n"+
			"or rrl heal, has made it whole; where it says fails, every call fails, and rrl doctor says why.\n"+
			"The last line sums up. A name of more than 120 characters is cut.\n\n"+
			"With --json each line is a limiter, with its whole name. Writes nothing, and needs no script.\n\n"+
			"Exit codes: 0 all limiters were listed, 1 something could not be looked at, 2 wrong usage.",
		[]cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "only names that match `PATTERN`: * any text, ? one character, [ab] one of these"},
			sortFlag("the order in which they are found; another one takes a look at all limiters before the first is shown"),
			&cli.IntFlag{Name: "limit", Value: 100, Usage: "show `N` limiters at most; 0 for all"},
			&cli.BoolFlag{Name: "waiting", Usage: "only limiters where a caller that asks for one permit does not get it at the moment"},
			&cli.BoolFlag{Name: "remains", Usage: "also permits whose limiter is gone"},
			&cli.Int64Flag{Name: "max-keys", Usage: "give up after looking at `N` keys; 0 for never"},
		},
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if c.Int("limit") < 0 || c.Int64("max-keys") < 0 {
				return command.UsageError{Err: errors.New("--limit and --max-keys are not below 0")}
			}
			by, err := orderOf(c)
			if err != nil {
				return err
			}
			l := &lister{out: c.Root().Writer, asJSON: c.Bool("json"), limit: c.Int("limit"), waiting: c.Bool("waiting"), by: by, where: rdb.where}
			return l.run(ctx, survey.New(rdb.UniversalClient), survey.Query{Match: c.String("match"), Remains: c.Bool("remains"), MaxKeys: c.Int64("max-keys")})
		})
}

// A lister writes a list of limiters.
type lister struct {
	out     io.Writer
	asJSON  bool
	limit   int
	waiting bool
	by      order // nil for the order of Redis
	where   string
}

// pageRows is after how many rows of a long list the rows so far are written.
const pageRows = 200

func (l *lister) run(ctx context.Context, s *survey.Survey, q survey.Query) error {
	var looked int64
	q.Looked = &looked
	var sum summing
	var list []*survey.Limiter
	n, more, errs := 0, false, []error(nil)
	t := newLimiterTable()
	show := func(lim *survey.Limiter) error {
		n++
		sum.add(lim)
		if l.asJSON {
			return term.EncodeJSON(l.out, jsonOf(lim))
		}
		addLimiter(t, lim)
		if len(t.rows) == pageRows {
			if err := t.write(l.out, terminalWidth(l.out)); err != nil {
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
			errs = append(errs, advise(err))
			continue
		}
		if l.waiting && !lim.Limited() {
			continue
		}
		if l.by != nil {
			list = append(list, lim)
			continue
		}
		if more = l.limit > 0 && n == l.limit; more {
			break
		}
		if err := show(lim); err != nil {
			return err
		}
	}
	if l.by != nil {
		slices.SortStableFunc(list, l.by)
		if more = l.limit > 0 && len(list) > l.limit; more {
			list = list[:l.limit]
		}
		for _, lim := range list {
			if err := show(lim); err != nil {
				return err
			}
		}
	}
	if !l.asJSON {
		if len(t.rows) > 0 {
			if err := t.write(l.out, terminalWidth(l.out)); err != nil {
				return err
			}
		}
		if n > 0 {
			fmt.Fprintf(l.out, "\n%s\n", sum.line(visible(l.where)))
		} else if len(errs) == 0 {
			fmt.Fprintf(l.out, "There are no such limiters in %s.\n", visible(l.where))
		}
		if more {
			fmt.Fprintf(l.out, "There are more: --limit 0 lists all, --match some.\n")
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("the list is not complete: %w", errors.Join(errs...))
	}
	return nil
}

// An order compares two limiters.
type order func(a, b *survey.Limiter) int

// orders are what --sort takes. Numbers begin with the largest.
var orders = map[string]order{
	"name":    func(a, b *survey.Limiter) int { return strings.Compare(a.Name, b.Name) },
	"rate":    func(a, b *survey.Limiter) int { return cmp.Compare(perSecond(b), perSecond(a)) },
	"used":    func(a, b *survey.Limiter) int { return cmp.Compare(share(b), share(a)) },
	"wait":    mostLimited,
	"ttl":     func(a, b *survey.Limiter) int { return cmp.Compare(b.TTL, a.TTL) },
	"members": func(a, b *survey.Limiter) int { return cmp.Compare(b.Members, a.Members) },
}

func sortFlag(none string) *cli.StringFlag {
	return &cli.StringFlag{Name: "sort", Usage: "sort by `COLUMN`: " + strings.Join(slices.Sorted(maps.Keys(orders)), ", ") + "; default: " + none}
}

// orderOf returns the order of the flag, or nil if it is not given.
func orderOf(c *cli.Command) (order, error) {
	name := c.String("sort")
	by, ok := orders[name]
	switch {
	case name == "":
		return nil, nil
	case !ok:
		return nil, command.UsageError{Err: fmt.Errorf("--sort %q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(orders)), ", "))}
	}
	return func(a, b *survey.Limiter) int { return cmp.Or(by(a, b), strings.Compare(a.Name, b.Name)) }, nil
}

// share returns how much of its rate a limiter has in use, from 0 to 1; 0 if that is not known.
func share(l *survey.Limiter) float64 {
	if n := l.Used(); n > 0 {
		return float64(n) / float64(l.Rate.Permits)
	}
	return 0
}

func perSecond(l *survey.Limiter) float64 {
	if l.Rate.Interval <= 0 {
		return 0
	}
	return float64(l.Rate.Permits) / l.Rate.Interval.Seconds()
}

// A summing counts limiters for the line that sums them up.
type summing struct{ all, limited, stuck, cooling, malformed, remains int }

func (s *summing) add(l *survey.Limiter) {
	switch {
	case l.Kind == survey.Remains:
		s.remains++
		return
	case l.Kind != survey.Live:
		return
	}
	s.all++
	switch {
	case l.Problem != nil || l.Broken != nil:
		s.malformed++
	case l.Stuck():
		s.stuck++
	case !l.CoolDown().IsZero():
		s.cooling++
	case l.Wait() > 0:
		s.limited++
	}
}

// line returns the counts that are not 0, with that of the limiters first.
func (s *summing) line(where string) string {
	text := survey.Counted(s.all, "limiter")
	if s.remains > 0 {
		text += fmt.Sprintf(", and what %d more have left behind,", s.remains)
	}
	text += " in " + where
	separator := ": "
	for _, c := range []struct {
		n    int
		what string
	}{{s.limited, "limited now"}, {s.cooling, "in a cool-down"}, {s.stuck, "stuck"}, {s.malformed, "malformed"}} {
		if c.n > 0 {
			text += fmt.Sprintf("%s%d %s", separator, c.n, c.what)
			separator = ", "
		}
	}
	return text
}

func newLimiterTable() *table {
	return &table{columns: []column{{head: "NAME"}, {head: "TYPE", drop: 4}, {head: "RATE", right: true}, {head: "USED", right: true},
		{head: "WAIT", right: true}, {head: "COOL-DOWN", right: true, drop: 1}, {head: "TTL", right: true, drop: 3},
		{head: "MEMBERS", right: true, drop: 5}, {head: "NODE", drop: 6}}}
}

func addLimiter(t *table, l *survey.Limiter) {
	typ, rate, wait, cool, ttl := "OVERALL", "", "-", "", "-"
	switch {
	case l.Kind == survey.Remains:
		typ, rate = "remains", "-"
	case l.Problem != nil:
		typ, rate = "malformed", "-"
	default:
		rate = survey.RateText(l.Rate)
		if l.Kind == survey.Told {
			typ, rate = "told", "-"
		} else if l.Rate.Type == permit.PerClient {
			typ = "PER_CLIENT"
		}
	}
	if w := l.Wait(); w != survey.Unknown {
		wait = brief(w)
	}
	switch {
	case l.Stuck():
		wait = "stuck"
	case l.Broken != nil:
		wait = "fails"
	}
	if at := l.CoolDown(); !at.IsZero() {
		cool = brief(at.Sub(l.Time))
	}
	if l.TTL >= 0 {
		ttl = brief(l.TTL)
	}
	members := fmt.Sprint(l.Members)
	if l.Members == 0 && (l.Problem != nil || l.Broken != nil || l.Rate.Type == permit.PerClient) {
		members = "-"
	}
	t.add(visible(l.Name), typ, rate, orDash(l.Used()), wait, cool, ttl, members, visible(l.Node))
}
