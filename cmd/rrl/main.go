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
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/ops/version"
	_ "github.com/goredisson/ratelimiter/limit" // its scripts
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
				return command.NoCommand(c, name)
			}
			return cli.ShowRootCommandHelp(c)
		},
	}
}

// gatewayCommand becomes rrl-gateway, which is a program of its own: its metrics would be compiled into rrl.
func gatewayCommand() *cli.Command {
	const program, pkg = "rrl-gateway", "cmd/rrl-gateway"
	return &cli.Command{
		Name:            "gateway",
		Usage:           "an HTTP proxy that keeps programs in any language within the limits: runs " + program,
		SkipFlagParsing: true,
		HideHelpCommand: true,
		HideHelp:        true,
		Action: func(_ context.Context, c *cli.Command) error {
			path, err := programPath(program)
			if err != nil {
				return command.Usage("there is no %s beside rrl or on PATH: go install github.com/goredisson/ratelimiter/%s@latest, "+
					"or in a clone go run ./%s", program, pkg, pkg)
			}
			err = syscall.Exec(path, append([]string{program}, c.Args().Slice()...), os.Environ())
			return fmt.Errorf("%s: %w; run it by itself", path, err)
		},
	}
}

// programPath returns where a program is: beside this one, or on PATH.
func programPath(program string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), program)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(program)
}

func scriptsCommand() *cli.Command {
	return &cli.Command{
		Name:      "scripts",
		Usage:     "print the Lua scripts that this version sends to Redis",
		ArgsUsage: "[NAME]",
		Description: "Without NAME it lists the scripts of RRateLimiter and of package limit, with the SHA-1 by which Redis\n" +
			"knows each (SCRIPT EXISTS, SLOWLOG, MONITOR) and how many keys and arguments it takes at most. With NAME it\n" +
			"prints the text that is sent.",
		OnUsageError: command.OnUsageError,
		Action: func(_ context.Context, c *cli.Command) error {
			all := dispatch.Loaded()
			if c.Args().Len() > 1 {
				return command.Usage("scripts takes one name, not %d", c.Args().Len())
			}
			if c.Args().Present() {
				name := c.Args().First()
				i := slices.IndexFunc(all, func(s *dispatch.Script) bool { return s.Name == name })
				if i < 0 {
					return command.Usage("no script %q", name)
				}
				_, err := io.WriteString(c.Root().Writer, all[i].Src)
				return err
			}
			t := &table{columns: []column{{head: "SCRIPT"}, {head: "SHA-1"}, {head: "KEYS", right: true}, {head: "ARGUMENTS", right: true}}}
			for _, s := range all {
				t.add(s.Name, s.Sha, strconv.Itoa(s.Keys), strconv.Itoa(s.Args))
			}
			return t.write(c.Root().Writer, 0)
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:         "version",
		Usage:        "print what a report of a problem needs: versions, platform, commit",
		OnUsageError: command.OnUsageError,
		Action: func(_ context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			_, err := fmt.Fprintln(c.Root().Writer, version.Details("rrl"))
			return err
		},
	}
}
