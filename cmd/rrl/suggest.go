package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/doctor"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/urfave/cli/v3"
)

// didYouMean returns the question whether suggestion was meant, which is like no other word what was typed. It returns
// nothing if the two are not much alike.
func didYouMean(typed, prefix, suggestion string) string {
	if !alike(typed, suggestion) {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", prefix, suggestion)
}

// alike reports whether two words differ in a third of their bytes at most.
func alike(a, b string) bool { return a != "" && b != "" && 3*distance(a, b) <= max(len(a), len(b)) }

// distance returns how many bytes have to be put in, left out, replaced, or swapped with the next one to make b of a. Upper
// and lower case are equal.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}

const (
	nearKeys    = 50_000          // at how many keys a search for a limiter's name looks
	nearTime    = 2 * time.Second // how long it takes at most
	nearLongest = 300             // bytes of the names that are compared
)

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
		if len(l.Name) > nearLongest || l.Kind != survey.Live || l.Name == name || !alike(name, l.Name) {
			continue
		}
		if best == "" || distance(name, l.Name) < distance(name, best) {
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
	c.Hidden, c.Usage, c.OnUsageError = false, "print the completion of commands and flags for bash, zsh, fish or pwsh", onUsageError
	c.HideHelpCommand = true
	c.Action = func(_ context.Context, c *cli.Command) error {
		if name := c.Args().First(); c.Args().Present() {
			return usageError{fmt.Errorf("no completion for the shell %q%s", name, didYouMean(name, "", cli.SuggestCommand(c.Commands, name)))}
		}
		return cli.ShowSubcommandHelp(c)
	}
	for _, shell := range c.Commands {
		shell.OnUsageError = onUsageError
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
