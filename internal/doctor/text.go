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
	runs    []Cmd // that it has, in their order
}

func (t Text) String() string { return t.english }

// In returns the text as translate says it, which is given each format with its values, those inside others first.
func (t Text) In(translate func(format string, args ...any) string) string {
	args := make([]any, len(t.args))
	for i, a := range t.args {
		switch x := a.(type) {
		case Text:
			a = x.In(translate)
		case Cmd:
			if x == NoCommand {
				a = translate(NoCommand)
			}
		}
		args[i] = a
	}
	return translate(t.format, args...)
}

// Say returns a text of a format and its values, of which those that are Texts or commands are said in the other language, too.
func Say(format string, args ...any) Text {
	t := Text{english: fmt.Sprintf(format, args...), format: format, args: args}
	for _, a := range args {
		switch a := a.(type) {
		case Cmd:
			t.runs = append(t.runs, a)
		case Text:
			t.runs = append(t.runs, a.runs...)
		}
	}
	return t
}

func say(format string, args ...any) Text { return Say(format, args...) }

// Word returns a text without values.
func Word(text string) Text { return Text{english: text, format: text} }

func word(text string) Text { return Word(text) }

// run returns commands as a text, one after the other.
func run(commands ...Cmd) Text {
	t := Text{runs: commands}
	for i, c := range commands {
		if i > 0 {
			t.english += "; "
		}
		t.english += string(c)
	}
	t.format = t.english
	return t
}

// commands returns the commands of a text that can be pasted.
func (t Text) commands() (list []Cmd) {
	for _, c := range t.runs {
		if c != NoCommand {
			list = append(list, c)
		}
	}
	return list
}

// counted returns a number of things. Its format has the singular.
func counted[N int | int64](n N, noun string) Text {
	return Text{english: survey.Counted(n, noun), format: "%d " + noun, args: []any{n}}
}

// Listed returns texts with a separator between them.
func Listed(separator string, list []Text) Text {
	t := list[0]
	for _, next := range list[1:] {
		t = say("%s%s%s", t, word(separator), next)
	}
	return t
}
