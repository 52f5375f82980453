// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/urfave/cli/v3"
)

const (
	nearKeys    = 50_000 // at how many keys a search for a limiter's name looks
	nearLongest = 300    // bytes of the names that are compared
)

// nearTime is how long such a search takes at most. Tests have more.
var nearTime = 2 * time.Second

// nearLimiter returns the question whether another limiter was meant, or nothing if none that is found soon has a name like
// this one.
func nearLimiter(ctx context.Context, rdb *liveRedis, name string) string {
	if len(name) > nearLongest {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, nearTime)
	defer cancel()
	best := ""
	for l, err := range survey.New(rdb.UniversalClient).Find(ctx, survey.Query{MaxKeys: nearKeys}) {
		if err != nil {
			break
		}
		if len(l.Name) > nearLongest || l.Kind != survey.Live || l.Name == name || !command.Alike(name, l.Name) {
			continue
		}
		if best == "" || command.Distance(name, l.Name) < command.Distance(name, best) {
			best = l.Name
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", doctor.ShellQuote(best))
}

// completion makes the command that prints the completion of a shell one that rrl --help shows.
func completion(c *cli.Command) {
	c.Hidden, c.Usage, c.OnUsageError = false, "print the completion of commands and flags for bash, zsh, fish or pwsh", command.OnUsageError
	c.HideHelpCommand = true
	c.Action = func(_ context.Context, c *cli.Command) error {
		if name := c.Args().First(); c.Args().Present() {
			return command.Usage("no completion for the shell %q%s", name, command.DidYouMean(name, "", cli.SuggestCommand(c.Commands, name)))
		}
		return cli.ShowSubcommandHelp(c)
	}
	for _, shell := range c.Commands {
		shell.OnUsageError = command.OnUsageError
		if shell.Name != "bash" {
			continue
		}
		script := shell.Action
		shell.Action = func(ctx context.Context, c *cli.Command) error {
			if err := script(ctx, c); err != nil {
				return err
			}
			// The script asks the package bash-completion for the words, and then does not need them.
			_, err := fmt.Fprintln(c.Root().Writer, "\n__rrl_init_completion() { COMPREPLY=(); }")
			return err
		}
	}
}
