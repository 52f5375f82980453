// Command rrl shows and mends the rate limiters of a live Redis, those of Redisson's RRateLimiter among them,
// and demonstrates and compares limiters.
//
//	go run ./cmd/rrl demo                                           in a clone
//	go run github.com/goredisson/ratelimiter/cmd/rrl@latest demo    of a release
//
// The exit code is 0 on success, 1 on failure, 2 on wrong usage and 130 after an interrupt. For rrl doctor and rrl
// diff, 1 means findings, and 2 also that they could not look. Results go to the standard output; each error is one line on
// the standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/urfave/cli/v3"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports a program that SIGINT ended
)

// errInterrupted is returned when Ctrl-C or SIGTERM ended the work before it was done.
var errInterrupted = errors.New("interrupted")

// A usageError is an error in the command line.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the process at once if the first one does not.
	context.AfterFunc(ctx, stop)
	// go-redis also logs the errors that it returns; here that would be a second line for one error.
	logging.Disable()
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// run runs the command and returns its exit code. It never calls os.Exit.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app, help := newApp(stdout, stderr), "rrl --help"
	err := app.Run(ctx, args)
	if len(args) > 1 && app.Command(args[1]) != nil {
		help = "rrl " + args[1] + " --help"
	}
	var usage usageError
	var exit exitError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(stderr, "rrl: interrupted")
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "rrl: %s (see %s)\n", oneLine(err), help)
		return exitUsage
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintf(stderr, "rrl: %s\n", oneLine(exit.err))
		}
		return exit.code
	}
	fmt.Fprintf(stderr, "rrl: %s\n", oneLine(err))
	return exitFailed
}

func newApp(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "rrl",
		Usage: "rate limiters in Redis, shared by Go and Redisson",
		Description: "rrl ls, top, inspect, watch, peek, doctor, diff, export and page look at the limiters of a live Redis, and write nothing. heal,\n" +
			"set-rate, release, cool-down, lift and delete change one, with --write. All of them need --redis URL\n" +
			"or REDIS_URL.\n\n" +
			"rrl demo needs nothing but this program. It shows a limiter admit, delay and refuse\n" +
			"real HTTP requests, and what that looks like in Redis.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Those of doctor, diff and peek differ: see their --help.",
		Version:   version(),
		Writer:    stdout,
		ErrWriter: stderr,
		Commands: append([]*cli.Command{lsCommand(), inspectCommand(), peekCommand(), doctorCommand(), diffCommand(), exportCommand(),
			watchCommand(), topCommand(), pageCommand()},
			append(writeCommands(), gatewayCommand(), demoCommand(), compareCommand(), scriptsCommand(), versionCommand())...),
		// The default handler prints the error and calls os.Exit.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   onUsageError,

		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: completion,
		Action: func(_ context.Context, c *cli.Command) error {
			if name := c.Args().First(); c.Args().Present() {
				return usageError{fmt.Errorf("no command %q%s", name, didYouMean(name, "", cli.SuggestCommand(c.Commands, name)))}
			}
			return cli.ShowRootCommandHelp(c)
		},
	}
}

func onUsageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	if _, flag, ok := strings.Cut(err.Error(), "provided but not defined: "); ok {
		flag = strings.TrimLeft(flag, "-")
		err = fmt.Errorf("%w%s", err, didYouMean(flag, "--", strings.TrimLeft(cli.SuggestFlag(c.Flags, flag, false), "-")))
	}
	return usageError{err}
}

// noArguments returns a usageError if c, which takes no arguments, was given some.
func noArguments(c *cli.Command) error {
	if c.Args().Present() {
		return usageError{fmt.Errorf("%s takes no argument %q", c.Name, c.Args().First())}
	}
	return nil
}
