// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/http/rates"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
)

// writeCommands are the commands that change a limiter. Each shows it before and after. Without --write it changes a copy,
// which nobody else sees.
func writeCommands() []*cli.Command {
	return []*cli.Command{
		writing("heal", "repair permit accounting: permits left and in use add up to the rate again", nil, []string{"What is too much is taken from the permits that are left, also what Java has released and nobody has acquired yet."},
			func(_ *cli.Command) (change, error) {
				return func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.Admin().Heal(ctx) }, nil
			}),
		writing("set-rate", "give a limiter another rate; the permits in use stay in use",
			[]cli.Flag{
				&cli.StringFlag{Name: "rate", Usage: "`RATE`: 10/s, 100/1m30s or 1000/day; or all of a rate, such as \"PER_CLIENT 5/10s keep-alive 1h gap 1s\""},
				&cli.Int64Flag{Name: "permits", Usage: "`N` permits in any interval, in place of --rate"},
				&cli.DurationFlag{Name: "interval", Usage: "`D`, such as 10s or 1m, in place of --rate"},
				&cli.DurationFlag{Name: "keep-alive", Usage: "`D` after its last call the limiter expires; 0 for never"},
				&cli.DurationFlag{Name: "min-gap", Usage: "at least `D` between permits, for Go callers; 0 for none"},
				&cli.StringFlag{Name: "type", Usage: "overall or per_client"},
				&cli.BoolFlag{Name: "forget", Usage: "forget the permits in use, so that all are free"},
				&cli.BoolFlag{Name: "create", Usage: "make the limiter if there is none of that name"},
			}, nil, setRate),
		writing("release", "give permits back before their interval is over", []cli.Flag{
			&cli.Int64Flag{Name: "permits", Usage: "`N`, the permits to give back", Required: true},
		}, nil, func(c *cli.Command) (change, error) {
			n := c.Int64("permits")
			return func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.Release(ctx, n) }, nil
		}),
		writing("cool-down", "block a limiter for a while", []cli.Flag{
			&cli.DurationFlag{Name: "for", Usage: "`D`, such as 5m", Required: true},
			&cli.DurationFlag{Name: "reopen", Usage: "afterwards, give the permits back over `D` in place of at once"},
		}, nil, func(c *cli.Command) (change, error) {
			d, reopen := c.Duration("for"), c.Duration("reopen")
			if d <= 0 || reopen < 0 {
				return nil, errors.New("--for is above 0, and --reopen not below")
			}
			return func(ctx context.Context, l *ratelimiter.RateLimiter) error {
				return l.CoolDown(ctx, time.Now().Add(d), ratelimiter.Reopen(reopen))
			}, nil
		}),
		writing("lift", "end a cool-down", nil, nil, func(*cli.Command) (change, error) {
			return func(ctx context.Context, l *ratelimiter.RateLimiter) error {
				lifted, err := l.Admin().LiftCoolDown(ctx)
				if err == nil && !lifted {
					err = errors.New("there was no cool-down")
				}
				return err
			}, nil
		}),
		writing("delete", "delete a limiter with its permits in use", nil, []string{"Of a PER_CLIENT limiter it deletes the rate, which is that of all clients, and the permits of the one client that\n" +
			"--client names. The permits of the others are left, and count if the rate is set again."},
			func(*cli.Command) (change, error) {
				return func(ctx context.Context, l *ratelimiter.RateLimiter) error {
					deleted, err := l.Admin().Delete(ctx)
					if err == nil && !deleted {
						err = command.Error{Code: command.ExitAbsent, Err: errors.New("there was nothing to delete")}
					}
					return err
				}, nil
			}),
	}
}

// A change is what a command does to a limiter.
type change func(ctx context.Context, l *ratelimiter.RateLimiter) error

// writing returns a command that changes a limiter. prepare checks the flags before anything is read.
func writing(name, usage string, flags []cli.Flag, notes []string, prepare func(c *cli.Command) (change, error)) *cli.Command {
	description := "Shows the limiter before and after. Without --write it works that out on a copy of the limiter, and\n" +
		"Redis is only read. Keys whose data does not show that they are a limiter's are left alone, which is an error.\n"
	for _, n := range notes {
		description += n + "\n"
	}
	description += "\nExit codes: 0 done, or shown without --write; 1 failed, " + exitCodes
	flags = append(slices.Clone(flags),
		&cli.BoolFlag{Name: "write", Usage: "do it"},
		&cli.StringFlag{Name: "client", Usage: "the permits of the client with that `ID` of a PER_CLIENT limiter"},
	)
	return liveCommand(name, usage, "NAME", description, flags, func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
		limiter, err := onlyName(c)
		if err != nil {
			return err
		}
		do, err := prepare(c)
		if err != nil {
			return command.Usage("%w", err)
		}
		s, out := survey.New(rdb.UniversalClient), c.Root().Writer
		before, err := s.Read(ctx, limiter, c.String("client"))
		if err != nil {
			return err
		}
		perClient := before.Problem == nil && before.Rate.Type == permit.PerClient
		if perClient && (name == "heal" || name == "release") {
			if err := askable(before, rdb); err != nil {
				return err
			}
		}
		if name == "set-rate" && nothingOf(before) && !c.Bool("create") {
			return fmt.Errorf("%w; --create makes it", absent(limiter, rdb))
		}
		both := name == "delete" || name == "set-rate" && (c.Bool("forget") || setsType(c) || before.Problem != nil)
		if err := s.Writable(ctx, before, both); err != nil {
			return err
		}
		write := c.Bool("write")
		w := &beforeAfter{out: out, asJSON: c.Bool("json"), name: name, written: write, to: rdb.to}
		if err := w.show("before", before); err != nil {
			return err
		}
		at := rdb.UniversalClient
		if !write {
			rehearsal, end, err := rehearse(ctx, rdb.UniversalClient, before)
			defer end()
			if err != nil {
				return err
			}
			at, s = rehearsal, survey.New(rehearsal)
		}
		if err := changeOnce(ctx, at, limiter, c.String("client"), do); err != nil {
			if errors.Is(err, ratelimiter.ErrInvalidArgument) {
				return command.Usage("%w", err)
			}
			if isAbsent(err) && name == "cool-down" {
				set := rdb.to.Command("set-rate", []string{limiter}, "--create", "--permits N", "--interval D", "--write")
				return fmt.Errorf("%w; to block one that is not there yet, make it first: %s", absent(limiter, rdb), set)
			}
			if isAbsent(err) && name != "set-rate" {
				return absent(limiter, rdb)
			}
			return err
		}
		after, err := s.Read(ctx, limiter, c.String("client"))
		if err != nil && write {
			return fmt.Errorf("it was done, but the limiter cannot be read any more: %w", err)
		}
		if err == nil {
			after.Node = before.Node
			err = w.show("after", after)
			if mixes(before, after) {
				fmt.Fprintln(c.Root().ErrWriter, "warning: Redisson 3.16.4 to 3.16.8, which has written here, cannot read the members of this change: its calls would fail with \"data string too short\"")
			}
		}
		switch {
		case err != nil || w.asJSON:
			return err
		case perClient && name == "delete":
			err = tellLeft(ctx, out, survey.New(rdb.UniversalClient), rdb.to, limiter, c.String("client"))
		}
		if err == nil && !write {
			_, err = fmt.Fprintln(out, "nothing was changed; --write does it")
		}
		return err
	})
}

// changeOnce makes one change as the client with that id. If id is empty, it is made as a client that nobody is, which
// has no permits of its own: what the change has written for it goes again.
func changeOnce(ctx context.Context, rdb redis.UniversalClient, limiter, id string, do change) error {
	var opts []ratelimiter.Option
	if id != "" {
		opts = append(opts, ratelimiter.WithClientID(id))
	}
	client, err := ratelimiter.New(rdb, opts...)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	err = do(ctx, client.RateLimiter(limiter))
	if id == "" {
		if forgot := redisson.Forget(ctx, rdb, limiter, client.ID()); err == nil {
			err = forgot
		}
	}
	return err
}

// tellLeft writes how many clients but one have permits of a PER_CLIENT limiter that is deleted, if any.
func tellLeft(ctx context.Context, out io.Writer, s *survey.Survey, to doctor.Target, limiter, but string) error {
	const most = 1000
	n := 0
	for id, err := range s.Clients(ctx, limiter) {
		if err != nil {
			return fmt.Errorf("it is not known whose permits are left: %w", err)
		}
		if id == but {
			continue
		}
		if st, err := s.Read(ctx, limiter, id); err == nil && !st.GrantsShow() {
			continue // another program's
		}
		if n++; n == most {
			break
		}
	}
	clients := permit.Counted(n, "client")
	switch n {
	case 0:
		return nil
	case most:
		clients += " or more"
	}
	_, err := fmt.Fprintf(out, "        the permits of %s are left: %s names their keys\n", clients, visible(string(to.Command("doctor", []string{limiter}))))
	return err
}

// mixes reports whether a change has written a member that Redisson 3.16.4 to 3.16.8, of which there were grants, cannot read.
func mixes(before, after *survey.State) bool {
	there := map[string]bool{}
	readable := false
	for _, m := range before.Members {
		there[m.Raw] = true
		readable = readable || m.Layout() == wire.LayoutLc0I
	}
	return readable && slices.ContainsFunc(after.Members, func(m survey.Member) bool { return !there[m.Raw] && m.Layout() != wire.LayoutLc0I })
}

// A beforeAfter writes a limiter before and after its change.
type beforeAfter struct {
	out     io.Writer
	asJSON  bool
	name    string
	written bool
	to      doctor.Target
}

// A changed is a limiter before or after a change, in JSON.
type changed struct {
	Command string `json:"command"`
	When    string `json:"when"`    // before, after
	Written bool   `json:"written"` // false without --write: after is how it would be
	view.Detail
}

func (w *beforeAfter) show(when string, st *survey.State) error {
	v := view.Of(st)
	if w.asJSON {
		return term.EncodeJSON(w.out, changed{w.name, when, w.written, v.Detail(w.to, 0)})
	}
	text := "no limiter"
	switch {
	case st.Problem != nil && !isAbsent(st.Problem):
		text = oneLine(st.Problem)
	case st.Problem == nil:
		text = fmt.Sprintf("%s %s, %s", st.Rate.Type, survey.RateText(st.Rate), expires(st.TTLs[0]))
		if st.Rate.Type == permit.Overall || st.ClientID != "" {
			text += "; available " + left(&v.Row) + v.Headline().String()
		}
		if at := st.CoolDown(); !at.IsZero() {
			text += "; cool-down for " + brief(at.Sub(st.Time))
		}
	}
	value := "none"
	if st.HasValue {
		value = cmp.Or(visibleName(st.Value), `""`)
	}
	_, err := fmt.Fprintf(w.out, "%-7s %s: %s; value %s, %s\n", when, visibleName(st.Name), text, value, permit.Counted(st.Count, "member"))
	return err
}

// setRate changes those parts of the rate that flags name.
func setRate(c *cli.Command) (change, error) {
	var typ ratelimiter.RateType
	if err := typ.UnmarshalText([]byte(strings.ToUpper(cmp.Or(c.String("type"), "overall")))); err != nil {
		return nil, fmt.Errorf("--type %q is neither overall nor per_client", c.String("type"))
	}
	var parts []func(r *ratelimiter.Rate)
	if c.IsSet("rate") {
		set, err := rateFlag(c)
		if err != nil {
			return nil, err
		}
		parts = append(parts, set)
	}
	for flag, set := range map[string]func(r *ratelimiter.Rate){
		"permits":    func(r *ratelimiter.Rate) { r.Permits = c.Int64("permits") },
		"interval":   func(r *ratelimiter.Rate) { r.Interval = c.Duration("interval") },
		"keep-alive": func(r *ratelimiter.Rate) { r.KeepAlive = c.Duration("keep-alive") },
		"min-gap":    func(r *ratelimiter.Rate) { r.MinGap = c.Duration("min-gap") },
		"type":       func(r *ratelimiter.Rate) { r.Type = typ },
	} {
		if c.IsSet(flag) {
			parts = append(parts, set)
		}
	}
	if len(parts) == 0 {
		return nil, errors.New("set-rate needs at least one of --rate, --permits, --interval, --keep-alive, --min-gap and --type")
	}
	return func(ctx context.Context, l *ratelimiter.RateLimiter) error {
		r, err := l.Rate(ctx)
		if errors.Is(err, ratelimiter.ErrNotInitialized) || errors.Is(err, ratelimiter.ErrMalformed) {
			if !c.IsSet("rate") && (!c.IsSet("permits") || !c.IsSet("interval")) {
				return fmt.Errorf("%w; --rate sets one afresh", err)
			}
			r, err = ratelimiter.Rate{}, nil
		}
		if err != nil {
			return err
		}
		for _, set := range parts {
			set(&r)
		}
		var opts []ratelimiter.RateOption
		if !c.Bool("forget") {
			opts = append(opts, ratelimiter.KeepState())
		}
		return l.SetRate(ctx, r, opts...)
	}, nil
}

// setsType reports whether set-rate may change the type of the limiter.
func setsType(c *cli.Command) bool {
	rate, _ := rates.Parse(c.String("rate"))
	return c.IsSet("type") || rate.Whole
}

// rateFlag returns the change that --rate makes: of the permits and the interval or, if it names a type, of all parts.
func rateFlag(c *cli.Command) (func(r *ratelimiter.Rate), error) {
	text := c.String("rate")
	rate, err := rates.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--rate: %w", err)
	}
	says := []string{"permits", "interval"}
	if rate.Whole {
		says = append(says, "type", "keep-alive", "min-gap")
	}
	for _, flag := range says {
		if c.IsSet(flag) {
			return nil, fmt.Errorf("--rate %q sets what --%s sets; give one of them", text, flag)
		}
	}
	return rate.Set, nil
}
