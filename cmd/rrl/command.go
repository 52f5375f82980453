// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/urfave/cli/v3"
)

// exitCodes is what the help of every command says of them, after what 0 and 1 mean.
const exitCodes = "2 wrong usage, 3 there is no such limiter, 4 Redis cannot be reached."

// liveCommand returns a command that looks at a live Redis. run gets a connection that is closed afterwards. With --json, an error is
// the last value that is written.
func liveCommand(name, usage, args, description string, flags []cli.Flag, run func(ctx context.Context, c *cli.Command, rdb *liveRedis) error) *cli.Command {
	if strings.HasPrefix(args, "NAME") || strings.HasPrefix(args, "[NAME]") {
		flags = append(slices.Clone(flags), &cli.BoolFlag{Name: "base64", Usage: "NAME is in base64, for names that a shell cannot carry"})
	}
	return &cli.Command{
		Name:        name,
		Usage:       usage,
		ArgsUsage:   args,
		Description: description,
		OnUsageError: func(ctx context.Context, c *cli.Command, err error, isSub bool) error {
			return said(c, command.OnUsageError(ctx, c, err, isSub))
		},
		HideHelpCommand: true,
		Flags:           redisFlags(flags...),
		Action: func(ctx context.Context, c *cli.Command) error {
			rdb, err := connect(ctx, c)
			if err == nil {
				defer func() { _ = rdb.Close() }()
				err = run(ctx, c, rdb)
				if isAbsent(err) || command.Code(err) == command.ExitAbsent {
					near := c.Args().First()
					if name, nerr := firstName(c); nerr == nil {
						near = name
					}
					err = command.Error{Code: command.ExitAbsent, Err: fmt.Errorf("%w%s", err, nearLimiter(ctx, rdb, near))}
				}
			}
			return ended(ctx, c, err)
		},
	}
}

// A jsonError is what a command writes last, if it fails, with --json.
type jsonError struct {
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
}

// ended returns the error of a command with its exit code.
func ended(ctx context.Context, c *cli.Command, err error) error {
	var exit command.Error
	known := errors.As(err, &exit)
	switch {
	case err == nil || known && exit.Err == nil:
		return err
	case ctx.Err() != nil && !known:
		return said(c, command.ErrInterrupted)
	case isDown(err) && !known:
		exit.Code = command.ExitDown
	case (c.Name == "doctor" || c.Name == "diff") && !known:
		exit.Code = exitNoAccess
	case !known:
		exit.Code = command.ExitFailed
	}
	if exit.Err = err; exit.Code != command.ExitUsage {
		exit.Err = advise(err)
	}
	return said(c, exit)
}

// said returns the error of a command, after it was written if the command writes JSON.
func said(c *cli.Command, err error) error {
	if c.Bool("json") {
		if err := term.EncodeJSON(c.Root().Writer, jsonError{survey.OneLine(err), command.Code(err)}); err != nil {
			return err
		}
	}
	return err
}

// isDown reports whether err says that Redis cannot be read at the moment.
func isDown(err error) bool {
	if survey.Unreachable(err) {
		return true
	}
	return err != nil && slices.ContainsFunc([]string{"LOADING ", "MASTERDOWN ", "CLUSTERDOWN "}, func(s string) bool { return strings.Contains(err.Error(), s) })
}

// firstName returns the first argument of a command, the name of a limiter.
func firstName(c *cli.Command) (string, error) {
	name := c.Args().First()
	if !c.Bool("base64") {
		return name, nil
	}
	raw, err := base64.StdEncoding.DecodeString(name)
	if err != nil {
		return "", command.Usage("with --base64, %q is no name in base64", name)
	}
	return string(raw), nil
}

// onlyName returns the single argument of a command, the name of a limiter.
func onlyName(c *cli.Command) (string, error) {
	name, err := firstName(c)
	if err == nil && (c.NArg() != 1 || name == "") {
		err = command.Usage("%s takes one argument, the name of a limiter", c.Name)
	}
	return name, err
}

// isAbsent reports whether err says that there is no such limiter.
func isAbsent(err error) bool { return errors.Is(err, permit.ErrNotInitialized) }

// nothingOf reports whether Redis holds nothing of a limiter that st is the state of.
func nothingOf(st *survey.State) bool {
	return isAbsent(st.Problem) && st.Types == [3]string{"none", "none", "none"}
}

// absent returns the error that there is no limiter with this name.
func absent(name string, rdb *liveRedis) error {
	return command.Error{Code: command.ExitAbsent, Err: fmt.Errorf("there is no limiter %q in %s (%s lists those that there are; with --remains also what deleted ones have left)", name, rdb.where, rdb.to.Command("ls", nil))}
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
		return command.Usage("%q is a PER_CLIENT limiter, whose clients have permits of their own; name one with --client (%s lists them)",
			st.Name, rdb.to.Command("inspect", []string{st.Name}, "--clients"))
	}
	return nil
}

// visible returns text with all characters that are not printable escaped, as [survey.Visible] does.
func visible(text string) string { return survey.Visible(text) }

// visibleName is visible for a name by itself, as [survey.VisibleName] is.
func visibleName(name string) string { return survey.VisibleName(name) }

// oneLine returns the text of err as one visible line.
func oneLine(err error) string { return survey.OneLine(err) }

// brief returns a duration for people, as [survey.Brief] does.
func brief(d time.Duration) string { return survey.Brief(d) }

// orDash returns a number, or a dash if it is not known.
func orDash(n int64) string {
	if n == survey.Unknown {
		return "-"
	}
	return fmt.Sprint(n)
}
