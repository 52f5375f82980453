package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/urfave/cli/v3"
)

func lsCommand() *cli.Command {
	return liveCommand("ls", "list the limiters of a Redis", " ",
		"Looks at the keys of every master with SCAN, in steps of 200, and shows the limiters among them. The\n"+
			"order is that in which Redis has them. WAIT is how long a caller that asks for one permit waits, as peek\n"+
			"says. A PER_CLIENT limiter has permits for each client, so USED and WAIT are those of inspect --clients;\n"+
			"a cool-down is that of all. At a limiter that is stuck, callers of Redisson fail until Go, or rrl heal,\n"+
			"has made it whole; where it says fails, every call fails, and rrl doctor says why.\n\n"+
			"With --json each line is a limiter. Writes nothing, and needs no script.\n\n"+
			"Exit codes: 0 all limiters were listed, 1 something could not be looked at, 2 wrong usage.",
		[]cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "only names that match `PATTERN`: * any text, ? one character, [ab] one of these"},
			&cli.IntFlag{Name: "limit", Value: 100, Usage: "stop after `N` limiters; 0 for all"},
			&cli.BoolFlag{Name: "waiting", Usage: "only limiters where a caller that asks for one permit does not get it at the moment"},
			&cli.BoolFlag{Name: "remains", Usage: "also permits whose limiter is gone"},
			&cli.Int64Flag{Name: "max-keys", Usage: "give up after looking at `N` keys; 0 for never"},
		},
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if c.Int("limit") < 0 || c.Int64("max-keys") < 0 {
				return usageError{errors.New("--limit and --max-keys are not below 0")}
			}
			l := &lister{out: c.Root().Writer, asJSON: c.Bool("json"), limit: c.Int("limit"), waiting: c.Bool("waiting"), where: rdb.where}
			return l.run(ctx, survey.New(rdb.UniversalClient), survey.Query{Match: c.String("match"), Remains: c.Bool("remains"), MaxKeys: c.Int64("max-keys")})
		})
}

// A lister writes a list of limiters.
type lister struct {
	out     io.Writer
	asJSON  bool
	limit   int
	waiting bool
	where   string
}

// pageRows is after how many rows of a long list the rows so far are written.
const pageRows = 200

func (l *lister) run(ctx context.Context, s *survey.Survey, q survey.Query) error {
	var looked int64
	q.Looked = &looked
	n, more, errs := 0, false, []error(nil)
	t := newLimiterTable()
	for lim, err := range s.Find(ctx, q) {
		if err != nil {
			if ctx.Err() != nil {
				return errInterrupted
			}
			errs = append(errs, advise(err))
			continue
		}
		if l.waiting && !lim.Limited() {
			continue
		}
		if l.limit > 0 && n == l.limit {
			more = true
			break
		}
		n++
		if l.asJSON {
			if err := encodeJSON(l.out, jsonOf(lim)); err != nil {
				return err
			}
			continue
		}
		addLimiter(t, lim)
		if len(t.rows) == pageRows {
			if err := t.write(l.out, terminalWidth(l.out)); err != nil {
				return err
			}
			t = newLimiterTable()
		}
	}
	if !l.asJSON {
		if len(t.rows) > 0 {
			if err := t.write(l.out, terminalWidth(l.out)); err != nil {
				return err
			}
		}
		switch {
		case more:
			fmt.Fprintf(l.out, "\nThere are more: --limit 0 lists all, --match some.\n")
		case n == 0 && len(errs) == 0:
			fmt.Fprintf(l.out, "There are no such limiters in %s.\n", visible(l.where))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("the list is not complete: %w", errors.Join(errs...))
	}
	return nil
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
