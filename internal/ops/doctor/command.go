// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"

	"github.com/goredisson/ratelimiter/internal/ops/shell"
)

// NoCommand stands in place of a command that cannot be pasted. A shell ends a word at a NUL, and not every shell knows of
// a way to write other characters that are not printable, so that the command would be about another limiter.
const NoCommand = "(no command is shown: a name in it is too long for a terminal, or has characters that a shell or a terminal changes)"

// longestWord is how many bytes a word of a command has at most. A terminal cuts lines after 4096 bytes.
const longestWord = 1000

// A Cmd is a command as one types it into a shell.
type Cmd string

// Shell returns a command as one types it into sh, bash, zsh or fish, with each word quoted where it needs to be. It returns
// NoCommand if a word cannot be.
func Shell(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = ShellQuote(w); quoted[i] == NoCommand {
			return NoCommand
		}
	}
	return strings.Join(quoted, " ")
}

// Flag returns a flag with its value for Command.
func Flag(name, value string) string {
	quoted := ShellQuote(value)
	switch {
	case quoted == NoCommand:
		return NoCommand
	case strings.HasPrefix(value, "-"):
		return name + "=" + quoted
	}
	return name + " " + quoted
}

// ShellQuote returns text as one word for sh, bash, zsh and fish, or NoCommand if that is not possible for all of them, or if text
// is long; see [shell.Quote].
func ShellQuote(text string) string {
	if word, ok := shell.Quote(text); ok && len(text) <= longestWord {
		return word
	}
	return NoCommand
}
