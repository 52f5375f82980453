// Command rrl shows and serves rate limiters that live in Redis as Redisson's RRateLimiter does.
//
//	go run ./cmd/rrl demo                                           in a clone
//	go run github.com/goredisson/ratelimiter/cmd/rrl@latest demo    of a release
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. What is asked for goes to stdout,
// errors go to stderr, one line each.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
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

// errInterrupted: somebody pressed Ctrl-C, or SIGTERM came, before the work was done.
var errInterrupted = errors.New("interrupted")

// A usageError is the caller's mistake, not ours.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the process at once, should the first not do.
	context.AfterFunc(ctx, stop)
	// go-redis logs what it also answers as an error; here it would be a second line for one fault.
	logging.Disable()
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// run is the program without the process: it answers the exit code. Nothing in it calls os.Exit.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := newApp(stdout, stderr).Run(ctx, args)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(stderr, "rrl: interrupted")
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "rrl: %s (see rrl --help)\n", oneLine(err))
		return exitUsage
	}
	fmt.Fprintf(stderr, "rrl: %s\n", oneLine(err))
	return exitFailed
}

func newApp(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "rrl",
		Usage: "rate limiters in Redis, shared by Go and Redisson",
		Description: "rrl demo needs nothing but this program. It shows a limiter admit, delay and refuse\n" +
			"real HTTP requests, and what that looks like in Redis.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
		Version:   version(),
		Writer:    stdout,
		ErrWriter: stderr,
		Commands:  []*cli.Command{demoCommand(), compareCommand(), versionCommand()},
		// The default would call os.Exit and print on its own.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   onUsageError,
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usageError{fmt.Errorf("no command %q", c.Args().First())}
			}
			return cli.ShowRootCommandHelp(c)
		},
	}
}

func onUsageError(_ context.Context, _ *cli.Command, err error, _ bool) error { return usageError{err} }

// noArguments refuses what a command would ignore.
func noArguments(c *cli.Command) error {
	if c.Args().Present() {
		return usageError{fmt.Errorf("%s takes no argument %q", c.Name, c.Args().First())}
	}
	return nil
}
