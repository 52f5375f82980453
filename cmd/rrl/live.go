// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/urfave/cli/v3"
)

// liveCommand returns a command that looks at a live Redis. run gets a connection that is closed afterwards.
func liveCommand(name, usage, args, description string, flags []cli.Flag, run func(ctx context.Context, c *cli.Command, rdb *liveRedis) error) *cli.Command {
	return &cli.Command{
		Name:            name,
		Usage:           usage,
		ArgsUsage:       args,
		Description:     description,
		OnUsageError:    command.OnUsageError,
		HideHelpCommand: true,
		Flags:           redisFlags(flags...),
		Action: func(ctx context.Context, c *cli.Command) error {
			rdb, err := connect(ctx, c)
			if err != nil {
				return err
			}
			defer func() { _ = rdb.Close() }()
			err = run(ctx, c, rdb)
			var gone absentError
			if errors.As(err, &gone) || isAbsent(err) {
				err = fmt.Errorf("%w%s", err, nearLimiter(ctx, rdb, c.Args().First()))
			}
			return liveError(ctx, err)
		},
	}
}

// onlyName returns the single argument of a command, the name of a limiter.
func onlyName(c *cli.Command) (string, error) {
	if c.NArg() != 1 || c.Args().First() == "" {
		return "", command.UsageError{Err: fmt.Errorf("%s takes one argument, the name of a limiter", c.Name)}
	}
	return c.Args().First(), nil
}

// jsonLimiter is a limiter in the output of ls.
type jsonLimiter struct {
	Name       string     `json:"name"`
	NameBase64 string     `json:"name_base64,omitempty"` // if the name is not valid UTF-8
	Kind       string     `json:"kind"`                  // limiter, remains, told
	Node       string     `json:"node"`
	TimeMS     int64      `json:"time_ms"` // when it was read, by the clock of Redis
	Type       string     `json:"type,omitempty"`
	Permits    int64      `json:"permits,omitempty"`
	IntervalMS int64      `json:"interval_ms,omitempty"`
	MinGapMS   int64      `json:"min_gap_ms,omitempty"`
	Used       *int64     `json:"used,omitempty"` // not of PER_CLIENT limiters
	Available  *int64     `json:"available,omitempty"`
	WaitMS     *int64     `json:"wait_ms,omitempty"` // of a caller that asks for one permit
	CoolDown   *time.Time `json:"cool_down_until,omitempty"`
	TTLMS      *int64     `json:"ttl_ms,omitempty"` // absent for a limiter that does not expire
	Members    int64      `json:"members"`
	Expired    int64      `json:"expired_members"`
	LastGrant  *time.Time `json:"last_grant,omitempty"`
	Stuck      bool       `json:"stuck,omitempty"` // callers of Redisson fail; see doctor
	Problem    string     `json:"problem,omitempty"`
}

func jsonName(name string) (text, bytes string) {
	if utf8.ValidString(name) {
		return name, ""
	}
	return name, base64.StdEncoding.EncodeToString([]byte(name))
}

func known(n int64) *int64 {
	if n == survey.Unknown {
		return nil
	}
	return &n
}

func jsonOf(l *survey.Limiter) jsonLimiter {
	o := jsonLimiter{Kind: l.Kind.String(), Node: l.Node, TimeMS: l.Time.UnixMilli(), Members: l.Members, Expired: l.Expired, Stuck: l.Stuck()}
	o.Name, o.NameBase64 = jsonName(l.Name)
	if l.Broken != nil {
		o.Problem = oneLine(l.Broken)
	}
	if l.Problem != nil {
		o.Problem = oneLine(l.Problem)
	} else {
		o.Type, o.Permits, o.IntervalMS, o.MinGapMS = l.Rate.Type.String(), l.Rate.Permits, l.Rate.Interval.Milliseconds(), l.Rate.MinGap.Milliseconds()
	}
	o.Used, o.Available = known(l.Used()), known(l.Available())
	if w := l.Wait(); w != survey.Unknown {
		ms := roundUp(w)
		o.WaitMS = &ms
	}
	if at := l.CoolDown(); !at.IsZero() {
		at = at.UTC()
		o.CoolDown = &at
	}
	if l.TTL >= 0 {
		ms := l.TTL.Milliseconds()
		o.TTLMS = &ms
	}
	if l.Newest != nil {
		if at, ok := l.Newest.Granted(); ok {
			at = at.UTC()
			o.LastGrant = &at
		}
	}
	return o
}

func roundUp(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// brief returns a duration for people, as [survey.Brief] does.
func brief(d time.Duration) string { return survey.Brief(d) }

// orDash returns a number, or a dash if it is not known.
func orDash(n int64) string {
	if n == survey.Unknown {
		return "-"
	}
	return fmt.Sprint(n)
}

// isAbsent reports whether err says that there is no such limiter.
func isAbsent(err error) bool { return errors.Is(err, permit.ErrNotInitialized) }

// nothingOf reports whether Redis holds nothing of a limiter that st is the state of.
func nothingOf(st *survey.State) bool {
	return isAbsent(st.Problem) && st.Types == [3]string{"none", "none", "none"}
}

// An absentError is the error that there is no limiter of the name that was typed.
type absentError struct{ error }

// absent returns the error that there is no limiter with this name.
func absent(name string, rdb *liveRedis) error {
	return absentError{fmt.Errorf("there is no limiter %q in %s (%s lists those that there are; with --remains also what deleted ones have left)", name, rdb.where, rdb.to.Command("ls", nil))}
}

// askable returns an error if nobody can be granted permits of what st holds: there is no limiter, it is malformed, or
// it has permits for each client and no client is named.
func askable(st *survey.State, rdb *liveRedis) error {
	switch {
	case isAbsent(st.Problem):
		return absent(st.Name, rdb)
	case st.Problem != nil:
		return fmt.Errorf("%w (%s says what to do)", st.Problem, rdb.to.Command("doctor", []string{st.Name}))
	case st.Rate.Type == permit.PerClient && st.ClientID == "":
		return command.UsageError{Err: fmt.Errorf("%q is a PER_CLIENT limiter, whose clients have permits of their own; name one with --client (%s lists them)",
			st.Name, rdb.to.Command("inspect", []string{st.Name}, "--clients"))}

	}
	return nil
}
