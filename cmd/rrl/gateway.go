package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v3"
)

const gatewayProgram = "rrl-gateway"

// gatewayCommand becomes rrl-gateway, which is a program of its own: its metrics would be compiled into rrl demo.
func gatewayCommand() *cli.Command {
	return &cli.Command{
		Name:            "gateway",
		Usage:           "an HTTP proxy that keeps programs in any language within the limits: runs " + gatewayProgram,
		SkipFlagParsing: true,
		HideHelpCommand: true,
		HideHelp:        true,
		Action: func(_ context.Context, c *cli.Command) error {
			path, err := gatewayPath()
			if err != nil {
				return usageError{fmt.Errorf("there is no %s beside rrl or on PATH: go install github.com/goredisson/ratelimiter/cmd/%s@latest, "+
					"or in a clone go run ./cmd/%s", gatewayProgram, gatewayProgram, gatewayProgram)}
			}
			err = syscall.Exec(path, append([]string{gatewayProgram}, c.Args().Slice()...), os.Environ())
			return fmt.Errorf("%s: %w; run it by itself", path, err)
		},
	}
}

// gatewayPath returns where the program is: beside this one, or on PATH.
func gatewayPath() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), gatewayProgram)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(gatewayProgram)
}
