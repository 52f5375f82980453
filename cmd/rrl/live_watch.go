// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/urfave/cli/v3"
)

func watchCommand() *cli.Command {
	return liveCommand("watch", "show one limiter again and again", "NAME",
		"Reads the limiter every second and writes a line each time: what is left, how long one permit takes, and\n"+
			"how many permits were granted since the line before. Writes nothing to Redis, and needs no script.\n\n"+
			"Exit codes: 0 after --count lines or Ctrl-C, 1 the limiter cannot be read, 2 wrong usage.",
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
				line := lineOf(st, last)
				last = st
				if c.Bool("json") {
					return term.EncodeJSON(out, line)
				}
				_, err = fmt.Fprintln(out, line)
				return err
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
// somebody ends it, and no error.
func repeatedly(ctx context.Context, c *cli.Command, look func() error) error {
	if c.Duration("every") < 100*time.Millisecond || c.Int("count") < 0 {
		return command.UsageError{Err: errors.New("--every is at least 100ms, and --count not below 0")}
	}
	for n := 1; ; n++ {
		if err := look(); err != nil {
			if ctx.Err() != nil {
				return command.ExitError{Code: command.ExitOK}
			}
			return err
		}
		if n == c.Int("count") {
			return nil
		}
		if retry.Sleep(ctx, c.Duration("every")) != nil {
			return command.ExitError{Code: command.ExitOK}
		}
	}
}

// A watchLine is what watch writes of one look.
type watchLine struct {
	TimeMS    int64  `json:"time_ms"`
	Rate      string `json:"rate,omitempty"`
	Available *int64 `json:"available,omitempty"`
	WaitMS    *int64 `json:"wait_ms,omitempty"`
	WaitsFor  string `json:"waits_for,omitempty"`
	Members   int64  `json:"members"`
	Granted   *int64 `json:"granted,omitempty"` // permits since the look before; absent if that is not known
	Problem   string `json:"problem,omitempty"`
}

// lineOf compares a look with the one before, which may be nil.
func lineOf(st, last *survey.State) watchLine {
	o := watchLine{TimeMS: st.Time.UnixMilli(), Members: st.Count}
	if st.Problem != nil {
		o.Problem = oneLine(st.Problem)
		return o
	}
	o.Rate = st.Rate.String()
	if pk, err := st.Peek(1); err == nil && pk.Known {
		ms := roundUp(pk.Wait)
		o.Available, o.WaitMS, o.WaitsFor = &pk.Available, &ms, pk.Why
	}
	if n, ok := grantedSince(st, last); ok {
		o.Granted = &n
	}
	return o
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

// String returns the line for people.
func (o watchLine) String() string {
	at := time.UnixMilli(o.TimeMS).UTC().Format("15:04:05.000")
	if o.Problem != "" {
		return fmt.Sprintf("%s  %s", at, visible(o.Problem))
	}
	left, wait, granted := "-", "", ""
	if o.Available != nil {
		left = fmt.Sprint(*o.Available)
	}
	if o.WaitMS != nil && *o.WaitMS > 0 {
		wait = fmt.Sprintf("  one permit takes %s, because of %s", brief(time.Duration(*o.WaitMS)*time.Millisecond), o.WaitsFor)
	}
	if o.Granted != nil {
		granted = fmt.Sprintf("  +%d granted", *o.Granted)
	}
	return fmt.Sprintf("%s  %s  %s left%s  %s%s", at, o.Rate, left, granted, survey.Counted(o.Members, "member"), wait)
}

func topCommand() *cli.Command {
	return liveCommand("top", "show the limiters that are most limited, again and again", " ",
		"Finds up to --limit limiters, looks for new ones once a minute, and shows those where a caller waits\n"+
			"longest first, then those of which most is in use. Writes nothing to Redis, and needs no script.\n\n"+
			"With --json each look is an array. Exit codes: 0 after --count looks or Ctrl-C, 1 Redis cannot be\n"+
			"read, 2 wrong usage.",
		append(everyFlags(),
			&cli.StringFlag{Name: "match", Usage: "only names that match `PATTERN`"},
			sortFlag("wait, the most limited first"),
			&cli.IntFlag{Name: "limit", Value: 1000, Usage: "watch `N` limiters at most"},
			&cli.IntFlag{Name: "rows", Value: 20, Usage: "show `N` of them"},
		),
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if c.Int("limit") < 1 || c.Int("rows") < 1 {
				return command.UsageError{Err: errors.New("--limit and --rows are at least 1")}
			}
			by, err := orderOf(c)
			if err != nil {
				return err
			}
			if by == nil {
				by = mostLimited
			}
			s, out := survey.New(rdb.UniversalClient), c.Root().Writer
			var list []*survey.Limiter
			var looked time.Time
			return repeatedly(ctx, c, func() (err error) {
				if time.Since(looked) > time.Minute {
					list, err = findSome(ctx, s, c.String("match"), c.Int("limit"))
					looked = time.Now()
				} else {
					list, err = s.Again(ctx, list)
				}
				if err != nil {
					return err
				}
				return showTop(out, slices.Clone(list), by, c.Int("rows"), c.Bool("json"))
			})
		})
}

// findSome returns the first limiters that it finds.
func findSome(ctx context.Context, s *survey.Survey, match string, most int) (list []*survey.Limiter, err error) {
	for l, err := range s.Find(ctx, survey.Query{Match: match}) {
		if err != nil {
			return nil, err
		}
		if l.Kind == survey.Live {
			list = append(list, l)
		}
		if len(list) == most {
			break
		}
	}
	return list, nil
}

// mostLimited orders limiters: those where calls fail, those where a caller waits longest, those of which most is used.
func mostLimited(a, b *survey.Limiter) int {
	fails := func(l *survey.Limiter) int {
		if l.Limited() && l.Wait() <= 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(fails(b), fails(a)), cmp.Compare(max(0, b.Wait()), max(0, a.Wait())), cmp.Compare(share(b), share(a)), cmp.Compare(a.Name, b.Name))
}

func showTop(out io.Writer, list []*survey.Limiter, by order, rows int, asJSON bool) error {
	slices.SortStableFunc(list, by)
	all := len(list)
	list = list[:min(rows, all)]
	if asJSON {
		o := make([]jsonLimiter, len(list))
		for i, l := range list {
			o[i] = jsonOf(l)
		}
		return term.EncodeJSON(out, o)
	}
	t := newLimiterTable()
	for _, l := range list {
		addLimiter(t, l)
	}
	if term.Is(out) {
		fmt.Fprint(out, "\x1b[H\x1b[2J")
	}
	fmt.Fprintf(out, "%s  %d of %s\n", time.Now().UTC().Format("15:04:05Z"), len(list), survey.Counted(all, "limiter"))
	if err := t.write(out, terminalWidth(out)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}
