// SPDX-License-Identifier: Apache-2.0

// Command rrl-gateway is an HTTP proxy that keeps its clients within the limits of a fleet, for programs in any language:
//
//	rrl-gateway --redis redis://127.0.0.1:6379/0 --rules rules.yaml
//	rrl-gateway ca --ca-dir gateway-ca
//
// docs/gateway.md describes it. It is a command and a module of its own, so that rrl does not compile the library of its
// metrics. The exit code is 0 after SIGTERM or Ctrl-C, 1 on failure and 2 on wrong usage.
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

	"github.com/goredisson/ratelimiter/internal/ops/version"
	"github.com/redis/go-redis/v9/logging"
	"github.com/urfave/cli/v3"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A usageError is an error in the command line or in a file that it names.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	logging.Disable() // the errors of go-redis are those of requests, which are logged
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// run runs the command and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := runStrictly(ctx, newApp(stdout, stderr), args)
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "rrl-gateway: %s (see rrl-gateway --help)\n", oneLine(err))
		return exitUsage
	}
	fmt.Fprintf(stderr, "rrl-gateway: %s\n", oneLine(err))
	return exitFailed
}

// oneLine returns an error as one line. Of several mistakes in a file, each has a line of its own.
func oneLine(err error) string {
	text := err.Error()
	if strings.Count(text, "\n") == strings.Count(text, "\nrulefile: ") {
		return strings.ReplaceAll(text, "\nrulefile: ", "\n  ")
	}
	return strings.ReplaceAll(text, "\n", "; ")
}

func newApp(stdout, stderr io.Writer) *cli.Command {
	onUsage := func(_ context.Context, _ *cli.Command, err error, _ bool) error {
		if flag := emptyValue.FindStringSubmatch(err.Error()); flag != nil {
			return emptyFlag(flag[1])
		}
		return usageError{err}
	}
	return &cli.Command{
		Name:    "rrl-gateway",
		Version: version.String(),
		Usage:   "an HTTP proxy that keeps its clients within a fleet's limits",
		Description: "Clients use http://GATEWAY/HOST as the base URL in place of https://HOST, or the gateway as their proxy.\n" +
			"A request that has no permits in time gets 429 with Retry-After and Proxy-Status: rrl-gateway.\n\n" +
			"/healthz, /readyz and /metrics are the gateway's own. SIGHUP reads the rules again, SIGTERM stops it.",
		Writer:         stdout,
		ErrWriter:      stderr,
		Flags:          serveFlags(),
		OnUsageError:   onUsage,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usage("no command %q", c.Args().First())
			}
			return serve(ctx, c, stderr)
		},
		Commands: []*cli.Command{{
			Name:         "version",
			Usage:        "print what a report of a problem needs: versions, platform, commit",
			OnUsageError: onUsage,
			Action: func(_ context.Context, c *cli.Command) error {
				if c.Args().Present() {
					return usage("version takes no argument %q", c.Args().First())
				}
				_, err := fmt.Fprintln(stdout, version.Details("rrl-gateway"))
				return err
			},
		}, {
			Name:         "ca",
			Usage:        "make a CA in --ca-dir if there is none, and print how clients use it",
			OnUsageError: onUsage,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "ca-dir", Usage: "`DIR` of the CA's certificate and key"},
				&cli.StringFlag{Name: "proxy", Usage: "`URL` of the gateway, for the lines that are printed", Value: "http://127.0.0.1:8080"},
			},
			Action: func(_ context.Context, c *cli.Command) error {
				if !c.IsSet("ca-dir") {
					return usage("ca needs --ca-dir DIR, for the CA's certificate and key")
				}
				return printCA(stdout, c.String("ca-dir"), c.String("proxy"))
			},
		}},
	}
}
