// SPDX-License-Identifier: Apache-2.0

// Package shell writes words as a user pastes them into a shell, and knows which text a terminal shows as it is.
package shell

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable reports whether text can be printed as it is: it is UTF-8, and has no control characters, which a terminal would obey,
// and none that change the direction of a text.
func Printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) })
}

// Quote returns text as one word for sh, bash, zsh and fish, in quotes where it needs to be. It reports false if that is not
// possible for all of them, because text is not [Printable]: a shell ends a word at a NUL, and not every shell knows of a way to
// write the other characters. A backslash stands outside of the quotes, between which fish
// takes it for an escape.
func Quote(text string) (word string, ok bool) {
	if !Printable(text) {
		return "", false
	}
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:,@%+", r)
	}
	if text != "" && !strings.ContainsFunc(text, special) {
		return text, true
	}
	return "'" + strings.NewReplacer("'", `'\''`, `\`, `'\\'`).Replace(text) + "'", true
}
