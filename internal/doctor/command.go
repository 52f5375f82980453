// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/internal/survey"
)

// NoCommand stands in place of a command that cannot be pasted. A shell ends a word at a NUL, and not every shell knows of
// a way to write other characters that are not printable, so that the command would be about another limiter.
const NoCommand = "(no command is shown: a name in it is too long for a terminal, or has characters that a shell or a terminal changes)"

// longestWord is how many bytes a word of a command has at most. A terminal cuts lines after 4096 bytes.
const longestWord = 1000

// Shell returns a command as one types it into sh, bash or zsh, with each word quoted where it needs to be. It returns
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

// Command returns a command of rrl as one types it into a shell: its arguments, which are quoted here, and its flags,
// which are not. If an argument begins with a dash, as the name of a limiter may, the arguments come last, after "--".
// Command returns NoCommand if an argument cannot be quoted, or if a flag is that.
func Command(command string, args []string, flags ...string) string {
	text := Shell(args...)
	if text == NoCommand || slices.Contains(flags, NoCommand) {
		return NoCommand
	}
	words := []string{text}
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }) {
		words = slices.Concat(flags, []string{"--"}, words)
	} else {
		words = slices.Concat(words, flags)
	}
	return strings.Join(slices.Concat([]string{"rrl", command}, words), " ")
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

// ShellQuote returns text as one word for sh, bash and zsh, or NoCommand if that is not possible for all of them: if text
// is long, is not valid UTF-8 or has a character that is not printable.
func ShellQuote(text string) string {
	if len(text) > longestWord || survey.Visible(text) != text {
		return NoCommand
	}
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,@%+", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
