// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/version"
	"github.com/urfave/cli/v3"
)

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
