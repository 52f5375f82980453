// SPDX-License-Identifier: Apache-2.0

// Command rrl-compare shows what each limiter of package limit, and an RRateLimiter, admits of the same traffic: in tables,
// charts and pictures. rrl compare runs it.
//
//	go run ./cmd/rrl/rrl-compare                                           in a clone
//	go run github.com/goredisson/ratelimiter/cmd/rrl/rrl-compare@latest    of a release
//
// The exit code is 0 on success, 1 on failure, 2 on wrong usage and 130 after an interrupt.
package main

import (
	"context"
	"io"
	"strings"

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
		Name:  "rrl-compare",
		Usage: "compare what each limiter admits of the same traffic, in tables, charts and pictures",
		Description: "Sends the same requests to the limiters of package limit and to an RRateLimiter, each in a Redis\n" +
			"inside this program and in virtual time, and shows what they admit. The cases are\n" +
			strings.Join(caseNames(), ", ") + ".\n\n" +
			"A --pattern is a file of such lines, for which --rate sets the limit. # begins a comment:\n\n" +
			"   0s..5s 100   100 requests, evenly from 0s up to but without 5s\n" +
			"   1.5s 10      10 requests at once\n" +
			"   2s 1 8       one request for 8 permits\n\n" +
			"All limiters have the same limit. The bursts, the capacity of the queue, the debt and what\n" +
			"SmoothBursty stores are the permits of one interval, and the warm-up takes one\n" +
			"interval. An RRateLimiter counts whole milliseconds, as Redisson does, so that its interval can\n" +
			"be shorter by up to one.\n\n" +
			"Several pictures are written to several files, with the name of the case or limiter before the\n" +
			"extension. With --json each line is an object with an event: case, limiter, file.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
		Version:         version.String(),
		Writer:          stdout,
		ErrWriter:       stderr,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "case", Usage: "the name of a case; may be repeated", DefaultText: "all"},
			&cli.StringFlag{Name: "pattern", Usage: "a file with other traffic, instead of the cases", TakesFile: true},
			&cli.StringFlag{Name: "rate", Usage: "the limit of the pattern, as in 1000/3s"},
			&cli.StringSliceFlag{Name: "limiter", Usage: "the name of a limiter; may be repeated", DefaultText: "all"},
			&cli.DurationFlag{Name: "wait", DefaultText: "one interval", Usage: "how far ahead LeakyQueue, SmoothBursty and SmoothWarmingUp may hand out turns"},
			&cli.StringFlag{Name: "svg", Usage: "the file to draw to", TakesFile: true},
			&cli.StringFlag{Name: "png", Usage: "the file to draw to", TakesFile: true},
			&cli.StringFlag{Name: "by", Value: byCase, Usage: "what a picture shows: case or limiter"},
			&cli.BoolFlag{Name: "json", Usage: "write one JSON object a line"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			k, err := newCompare(c)
			if err != nil {
				return command.UsageError{Err: err}
			}
			return k.run(ctx, c.Root().Writer)
		},
	}
}
