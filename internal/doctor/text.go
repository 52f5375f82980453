// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"github.com/goredisson/ratelimiter/internal/survey"
)

// A Text is what a finding says: in English, and as a format with its values, by which it can be said in another language.
type Text struct {
	english string
	format  string
	args    []any
}

func (t Text) String() string { return t.english }

// In returns the text as translate says it, which is given each format with its values, those inside others first.
func (t Text) In(translate func(format string, args ...any) string) string {
	args := make([]any, len(t.args))
	for i, a := range t.args {
		switch x := a.(type) {
		case Text:
			a = x.In(translate)
		case string:
			if x == NoCommand {
				a = translate(NoCommand)
			}
		}
		args[i] = a
	}
	return translate(t.format, args...)
}

func say(format string, args ...any) Text { return Text{fmt.Sprintf(format, args...), format, args} }

// word returns a text without values.
func word(text string) Text { return Text{english: text, format: text} }

// counted returns a number of things. Its format has the singular.
func counted[N int | int64](n N, noun string) Text {
	return Text{survey.Counted(n, noun), "%d " + noun, []any{n}}
}

// listed returns texts with a separator between them.
func listed(separator string, list []Text) Text {
	t := list[0]
	for _, next := range list[1:] {
		t = say("%s%s%s", t, word(separator), next)
	}
	return t
}
