// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/urfave/cli/v3"
)

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
