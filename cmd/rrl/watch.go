// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/urfave/cli/v3"
)

func watchCommand() *cli.Command {
	return liveCommand("watch", "show one limiter again and again", "NAME",
		"Reads the limiter every second and writes a line each time: what is left, how many permits were granted since\n"+
			"the line before, and what a new caller meets. While Redis does not reply, the lines say so. Writes nothing to\n"+
			"Redis, and needs no script.\n\n"+
			"Exit codes: 0 after --count lines or Ctrl-C, 1 the limiter cannot be read, "+exitCodes,
		append(everyFlags(), &cli.StringFlag{Name: "client", Usage: "the permits of the client with that `ID` of a PER_CLIENT limiter"}),
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			name, err := onlyName(c)
			if err != nil {
				return err
			}
			s, out := survey.New(rdb.UniversalClient), c.Root().Writer
			var last *survey.State
			return repeatedly(ctx, c, func() error {
				st, err := s.Read(ctx, name, c.String("client"))
				if err != nil {
					return err
				}
				if last == nil {
					if err := askable(st, rdb); err != nil {
						return err
					}
				}
				r := view.RowOf(st.Limiter())
				line := watchLine{Summary: r.Summary()}
				if n, ok := grantedSince(st, last); ok {
					line.Granted = &n
				}
				last = st
				if c.Bool("json") {
					return term.EncodeJSON(out, line)
				}
				return line.write(out, &r)
			})
		})
}

func everyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "every", Value: time.Second, Usage: "`D` between two looks, at least 100ms"},
		&cli.IntFlag{Name: "count", Usage: "end after `N` looks; 0 for never"},
	}
}

// repeatedly calls look until it fails, ctx is done or it has been called as often as the flag says. An interrupt is how
// somebody ends it, and no error. Once a look has succeeded, a Redis that does not reply is no error either: it is said, and looked
// for again.
func repeatedly(ctx context.Context, c *cli.Command, look func() error) error {
	if c.Duration("every") < 100*time.Millisecond || c.Int("count") < 0 {
		return command.Usage("--every is at least 100ms, and --count not below 0")
	}
	seen := false
	for n := 1; ; n++ {
		err := look()
		switch {
		case err == nil:
			seen = true
		case ctx.Err() != nil:
			return command.Error{Code: command.ExitOK}
		case !seen || !isDown(err):
			return err
		case c.Bool("json"):
			if err := term.EncodeJSON(c.Root().Writer, jsonError{oneLine(advise(err)), command.ExitDown}); err != nil {
				return err
			}
		default:
			fmt.Fprintf(c.Root().Writer, "%s  Redis does not reply, and is asked again: %s\n", time.Now().UTC().Format("15:04:05.000"), oneLine(err))
		}
		if n == c.Int("count") {
			return nil
		}
		if retry.Sleep(ctx, c.Duration("every")) != nil {
			return command.Error{Code: command.ExitOK}
		}
	}
}

// A watchLine is what watch writes of one look, in JSON.
type watchLine struct {
	view.Summary
	Granted *int64 `json:"granted,omitempty"` // permits since the look before; absent if that is not known
}

// grantedSince adds up the grants of st that last does not have. It reports false if they may be among the members
// that were not read.
func grantedSince(st, last *survey.State) (n int64, ok bool) {
	if last == nil || last.Problem != nil {
		return 0, false
	}
	newest := float64(0) // a grant that a release has made smaller is a new member with an old score
	had := map[string]bool{}
	for _, m := range last.Members {
		had[m.Raw] = true
		if m.Mark() == 0 {
			newest = max(newest, m.Score)
		}
	}
	seen := st.Whole
	for _, m := range st.Members {
		switch {
		case had[m.Raw]:
			seen = true
		case m.Mark() == 0 && m.Score >= newest:
			n += int64(m.Permits)
		}
	}
	return n, seen
}

// write writes the line for people.
func (o *watchLine) write(out io.Writer, r *view.Row) error {
	at := time.UnixMilli(r.At).UTC().Format("15:04:05.000")
	if r.Problem != "" {
		_, err := fmt.Fprintf(out, "%s  %s\n", at, visible(r.Problem))
		return err
	}
	meets, granted := "", ""
	if r.Wait != 0 || r.Waiting > 0 || r.Is(view.Stuck) {
		meets = "  " + r.Headline().String()
	}
	if o.Granted != nil {
		granted = fmt.Sprintf("  +%d granted", *o.Granted)
	}
	_, err := fmt.Fprintf(out, "%s  %s  %s left%s  %s%s\n", at, r.Rate, orDash(r.Available), granted, permit.Counted(r.Members, "member"), meets)
	return err
}

const (
	sweepEvery = time.Minute
	mostSwept  = 200_000 // limiters
)

func topCommand() *cli.Command {
	return liveCommand("top", "show the limiters that hurt most, again and again", " ",
		fmt.Sprintf("Looks at all limiters, %d at most, once a minute, and each time at the --limit of them that hurt most: those\n", mostSwept)+
			"where calls fail, where most callers wait, in a cool-down, limited, and used-up quotas last. The first line says of\n"+
			"how many. While Redis does not reply, it says so. Writes nothing to Redis, and needs no script.\n\n"+
			"With --json each look is an array. Exit codes: 0 after --count looks or Ctrl-C, 1 Redis cannot be\n"+
			"read, "+exitCodes,
		append(everyFlags(),
			&cli.StringFlag{Name: "match", Usage: "only names that match `PATTERN`"},
			sortFlag(""),
			&cli.IntFlag{Name: "limit", Value: 1000, Usage: "look at `N` limiters each time; at all of them once a minute"},
			&cli.IntFlag{Name: "rows", Value: 20, Usage: "show `N` of them, and no more than the terminal has room for"},
		),
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if c.Int("limit") < 1 || c.Int("rows") < 1 {
				return command.Usage("--limit and --rows are at least 1")
			}
			by, err := orderOf(c)
			if err != nil {
				return err
			}
			t := &top{Survey: survey.New(rdb.UniversalClient), by: by, match: c.String("match"), most: c.Int("limit"), rows: c.Int("rows"), out: c.Root().Writer}
			return repeatedly(ctx, c, func() error {
				rows, err := t.look(ctx)
				if err != nil {
					return err
				}
				return t.show(rows, c.Bool("json"))
			})
		})
}

// A top finds the limiters that come first in an order.
type top struct {
	*survey.Survey
	by    view.Order
	match string
	most  int
	rows  int
	out   io.Writer

	all   int // limiters that the last sweep has found
	more  bool
	away  string     // why not all can be read, or empty
	first []view.Row // those that are read again
	swept time.Time
	at    time.Time  // of a recorded look; the zero time for now
	still bool       // looks follow each other on a terminal, in place of one at a time
	next  chan sweep // of the sweep that is being made, or nil
}

type sweep struct {
	rows []view.Row
	more bool
	away string
	err  error
}

// look returns the first limiters, read a moment ago. The first time it waits until all were looked at; later that is done beside.
func (t *top) look(ctx context.Context) ([]view.Row, error) {
	if t.next == nil && time.Since(t.swept) > sweepEvery {
		t.next = make(chan sweep, 1)
		go func(next chan sweep) { next <- t.sweep(ctx) }(t.next)
	}
	var done sweep
	select {
	case done = <-t.next:
	default:
		if t.first == nil {
			done = <-t.next
			break
		}
		list := make([]survey.Place, len(t.first))
		for i, r := range t.first {
			list[i] = survey.Place{Name: r.Name, Node: r.Node}
		}
		found, err := t.Again(ctx, list)
		if err != nil {
			return nil, err
		}
		rows := make([]view.Row, len(found))
		for i, l := range found {
			rows[i] = view.RowOf(l)
		}
		view.Sort(rows, t.by)
		if gone := len(t.first) - len(rows); gone > 0 { // deleted, or lost by Redis: all are looked at again
			t.first, t.all, t.swept = rows, t.all-gone, time.Time{}
		}
		return rows, nil
	}
	if t.next = nil; done.err != nil {
		return nil, done.err
	}
	view.Sort(done.rows, t.by)
	t.all, t.more, t.away, t.swept = len(done.rows), done.more, done.away, time.Now()
	t.first = slices.Clone(done.rows[:min(t.most, t.all)])
	return t.first, nil
}

func (t *top) sweep(ctx context.Context) (done sweep) {
	done.rows = []view.Row{}
	for l, err := range t.Find(ctx, survey.Query{Match: t.match}) {
		var node *survey.NodeError
		switch {
		case errors.As(err, &node) && !isDown(err): // what the ACL hides
			done.away = oneLine(err)
		case err != nil:
			done.err = err
			return done
		case l.Kind != survey.Live:
		case len(done.rows) == mostSwept:
			done.more = true
			return done
		default:
			done.rows = append(done.rows, view.RowOf(l))
		}
	}
	return done
}

func (t *top) show(rows []view.Row, asJSON bool) error {
	most := t.rows
	if high := term.Height(t.out); high > 0 {
		most = max(1, min(most, high-4)) // the heads, a blank line, and the line where the cursor is
	}
	rows = rows[:min(most, len(rows))]
	if asJSON {
		o := make([]view.Summary, len(rows))
		for i := range rows {
			o[i] = rows[i].Summary()
		}
		return term.EncodeJSON(t.out, o)
	}
	table := newLimiterTable()
	for i := range rows {
		addLimiter(table, &rows[i])
	}
	if term.Is(t.out) && !t.still {
		fmt.Fprint(t.out, "\x1b[H\x1b[2J")
	}
	of := permit.Counted(t.all, "limiter")
	if t.more {
		of += " (there are more)"
	}
	if len(t.first) < t.all && t.at.IsZero() {
		of += fmt.Sprintf("; %d are read each time, all at %s", len(t.first), t.swept.UTC().Format("15:04:05Z"))
	}
	if t.away != "" {
		of += "; not all can be read: " + visible(t.away)
	}
	at := t.at
	if at.IsZero() {
		at = time.Now()
	}
	fmt.Fprintf(t.out, "%s  %d of %s\n", at.UTC().Format("15:04:05Z"), len(rows), of)
	if err := table.write(t.out, term.Width(t.out)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(t.out)
	return err
}
