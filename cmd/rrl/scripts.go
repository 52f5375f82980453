// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"slices"
	"strconv"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	_ "github.com/goredisson/ratelimiter/limit" // its scripts
	"github.com/urfave/cli/v3"
)

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
