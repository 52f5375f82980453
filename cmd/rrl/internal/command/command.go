// SPDX-License-Identifier: Apache-2.0

// Package command runs a command-line program: exit codes, and errors of one line.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/redis/go-redis/v9/logging"
	"github.com/urfave/cli/v3"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitAbsent      = 3   // there is no such limiter
	ExitDown        = 4   // Redis does not reply
	ExitInterrupted = 130 // as a shell reports a program that SIGINT ended
)

// ErrInterrupted is returned when Ctrl-C or SIGTERM ended the work before it was done.
var ErrInterrupted = Error{ExitInterrupted, errors.New("interrupted")}

// An Error ends the program with an exit code. Its Err is nil if everything has been said.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e Error) Error() string {
	if e.Err == nil {
		return fmt.Sprint("exit code ", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e Error) Unwrap() error { return e.Err }

// Usage returns the Error of a command line that is wrong.
func Usage(format string, args ...any) Error { return Error{ExitUsage, fmt.Errorf(format, args...)} }

// Code returns the exit code of an error.
func Code(err error) int {
	var exit Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return exit.Code
	}
	return ExitFailed
}

// Main calls run with the arguments of the process, and a context that a signal ends, and ends the process.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the process at once if the first one does not.
	context.AfterFunc(ctx, stop)
	// go-redis also logs the errors that it returns; here that would be a second line for one error.
	logging.Disable()
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// Run runs app and returns its exit code, after an error of one line. It never calls os.Exit.
func Run(ctx context.Context, app *cli.Command, args []string, stderr io.Writer) int {
	// The default handler prints the error and calls os.Exit.
	app.ExitErrHandler = func(context.Context, *cli.Command, error) {}
	app.OnUsageError = func(ctx context.Context, c *cli.Command, err error, sub bool) error {
		if len(args) > 1 && !strings.HasPrefix(args[1], "-") && len(c.Commands) > 0 && c.Command(args[1]) == nil {
			return NoCommand(c, args[1]) // what follows is not the root's
		}
		return OnUsageError(ctx, c, err, sub)
	}
	err := runStrictly(ctx, app, args)
	help := app.Name + " --help"
	if len(args) > 1 && app.Command(args[1]) != nil {
		help = app.Name + " " + args[1] + " --help"
	}
	var exit Error
	if err == nil || errors.As(err, &exit) && exit.Err == nil {
		return Code(err)
	}
	see := ""
	if Code(err) == ExitUsage {
		see = " (see " + help + ")"
	}
	fmt.Fprintf(stderr, "%s: %s%s\n", app.Name, lines(err), see)
	return Code(err)
}

// NoCommand returns the error that c has no command of that name, which names the one that was perhaps meant.
func NoCommand(c *cli.Command, name string) error {
	return Usage("no command %q%s", name, DidYouMean(name, "", cli.SuggestCommand(c.Commands, name)))
}

// OnUsageError returns an error of usage, which names the flag that was perhaps meant.
func OnUsageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	if flag := emptyValue.FindStringSubmatch(err.Error()); flag != nil {
		return emptyFlag(flag[1])
	}
	if _, flag, ok := strings.Cut(err.Error(), "provided but not defined: "); ok {
		flag = strings.TrimLeft(flag, "-")
		err = fmt.Errorf("%w%s", err, DidYouMean(flag, "--", strings.TrimLeft(cli.SuggestFlag(c.Flags, flag, false), "-")))
	}
	if missing := missingFlags(c); strings.HasPrefix(err.Error(), "Required flag") && missing != "" {
		err = fmt.Errorf("%s needs %s", c.Name, missing)
	}
	return Usage("%w", err)
}

// missingFlags returns the flags that c must have and has not, each with what it takes: "--for D, such as 5m".
func missingFlags(c *cli.Command) string {
	var missing []string
	for _, f := range c.Flags {
		if r, ok := f.(cli.RequiredFlag); ok && r.IsRequired() && !f.IsSet() {
			d := f.(cli.DocGenerationFlag)
			missing = append(missing, "--"+f.Names()[0]+" "+strings.ReplaceAll(d.GetUsage(), "`", ""))
		}
	}
	return strings.Join(missing, ", and ")
}

// NoArguments returns an error of usage if c, which takes no arguments, was given some.
func NoArguments(c *cli.Command) error {
	if c.Args().Present() {
		return Usage("%s takes no argument %q", c.Name, c.Args().First())
	}
	return nil
}

// lines returns an error as one line, but for the mistakes of a rule file, each of which has a line of its own.
func lines(err error) string {
	parts := strings.Split(err.Error(), "\nrulefile: ")
	for i, part := range parts {
		parts[i] = survey.OneLine(errors.New(part))
	}
	return strings.Join(parts, "\n  ")
}
