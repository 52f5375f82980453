package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/urfave/cli/v3"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:         "version",
		Usage:        "print the version, the Go release and the platform",
		OnUsageError: command.OnUsageError,
		Action: func(_ context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.Root().Writer, "rrl %s %s %s/%s\n", command.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
