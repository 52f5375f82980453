// SPDX-License-Identifier: Apache-2.0

// Command rrl shows and fixes the rate limiters of a live Redis, those of Redisson's RRateLimiter among them.
//
//	go run ./cmd/rrl ls                                           in a clone
//	go run github.com/goredisson/ratelimiter/cmd/rrl@latest ls    of a release
//
// The exit code is 0 on success, 1 on failure, 2 on wrong usage, 3 if there is no such limiter, 4 if Redis cannot be reached and 130
// after an interrupt. For rrl doctor and rrl diff, 1 means findings, and 2 also that they could not look at all. Results go to the standard output; each error is one line on
// the standard error.
package main

import (
	"context"
	"io"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/version"
	"github.com/urfave/cli/v3"
)

func main() { command.Main(run) }

// run runs the command and returns its exit code. It never calls os.Exit.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return command.Run(ctx, newApp(stdout, stderr), args, stderr)
}

func newApp(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "rrl",
		Usage: "rate limiters in Redis, shared by Go and Redisson",
		Description: "rrl ls, top, inspect, watch, peek, doctor, diff, export and page look at the limiters of a live Redis, and write nothing. heal,\n" +
			"set-rate, release, cool-down, lift and delete change one, with --write. All of them need --redis URL\n" +
			"or REDIS_URL.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 3 there is no such limiter, 4 Redis cannot be reached, 130 interrupted.\n" +
			"For doctor and diff 1 means findings, for peek that a caller would wait: see their --help.",
		Version:   version.String(),
		Writer:    stdout,
		ErrWriter: stderr,
		Commands: append([]*cli.Command{lsCommand(), inspectCommand(), peekCommand(), doctorCommand(), diffCommand(), exportCommand(),
			watchCommand(), topCommand(), pageCommand(), recordCommand(), replayCommand()},
			append(writeCommands(), gatewayCommand(), scriptsCommand(), versionCommand())...),
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: completion,
		Action: func(_ context.Context, c *cli.Command) error {
			if name := c.Args().First(); c.Args().Present() {
				return command.Usage("no command %q%s", name, command.DidYouMean(name, "", cli.SuggestCommand(c.Commands, name)))
			}
			return cli.ShowRootCommandHelp(c)
		},
	}
}
