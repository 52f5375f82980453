package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/internal/survey"
)

// Command returns a command of rrl as one types it into a shell: its arguments, which are quoted here, and its flags,
// which are not. If an argument begins with a dash, as the name of a limiter may, the arguments come last, after "--".
func Command(command string, args []string, flags ...string) string {
	words, dash := []string{}, false
	for _, a := range args {
		words, dash = append(words, ShellQuote(a)), dash || strings.HasPrefix(a, "-")
	}
	if dash {
		words = slices.Concat(flags, []string{"--"}, words)
	} else {
		words = slices.Concat(words, flags)
	}
	return strings.Join(slices.Concat([]string{"rrl", command}, words), " ")
}

// ShellQuote returns text as one word for a shell. The word has no character that is not printable.
func ShellQuote(text string) string {
	plain := text != ""
	printable := survey.Visible(text) == text
	for i := range len(text) {
		c := text[i]
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./:,@%+=", c) >= 0
		plain = plain && word
	}
	switch {
	case plain:
		return text
	case printable:
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteString("'")
	return b.String()
}
