// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Text is what a finding says: in English, and as a format with its values, by which it can be said in another language.
type Text struct {
	english string
	format  string
	args    []any
	runs    []planned // the commands that it has, in their order
}

// A planned is a command of a text, what has to hold for it, and what to wait before it.
type planned struct {
	run   Cmd
	when  *Text // nil if it can always be run
	after time.Duration
}

// only returns the text whose commands are run only when that holds, which somebody has to know, and what they are run for already.
func (t Text) only(when Text) Text {
	of := map[*Text]*Text{nil: &when}
	t.runs = slices.Clone(t.runs)
	for i, r := range t.runs {
		if of[r.when] == nil {
			both := say("%s, and %s", when, *r.when)
			of[r.when] = &both
		}
		t.runs[i].when = of[r.when]
	}
	return t
}

// onlyIf returns the text, run only when that holds, which it says; without a condition it is the text itself.
func (t Text) onlyIf(when Text) Text {
	if when.String() == "" {
		return t
	}
	return say("if %s: %s", when, t.only(when))
}

// after returns the text whose commands are run that much later than those before them.
func (t Text) after(wait time.Duration) Text {
	t.runs = slices.Clone(t.runs)
	for i := range t.runs {
		t.runs[i].after = wait
	}
	return t
}

// showing returns a command that only shows something. It is in the text, and not among the commands of a finding.
func showing(c Cmd) Text {
	t := say("%s", c)
	t.runs = nil
	return t
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
			t.runs = append(t.runs, planned{run: a})
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
	var t Text
	for i, c := range commands {
		t.runs = append(t.runs, planned{run: c})
		if i > 0 {
			t.english += "; "
		}
		t.english += string(c)
	}
	t.format = t.english
	return t
}

// A Step is commands of a finding that are not to be run at once, or not by everybody.
type Step struct {
	If       string `json:"if,omitempty"`       // what has to hold, which only somebody who knows the services can say
	AfterMS  int64  `json:"after_ms,omitempty"` // how long to wait before the first of them
	Commands []Cmd  `json:"commands"`           // to be run in their order
	Then     []Step `json:"then,omitempty"`     // what belongs to it and follows, each when its time has passed since the commands before it

	IfText Text `json:"-"` // If, for other languages
}

// unfit reports whether a command of s cannot be pasted.
func (s Step) unfit() bool {
	return slices.Contains(s.Commands, NoCommand) || slices.ContainsFunc(s.Then, Step.unfit)
}

// plan returns the commands of a text that can be pasted: those to be run at once, those that follow when a time has
// passed, and those for which something has to hold, of which a part may have to wait. None is left where one cannot be pasted that is
// run before it.
func (t Text) plan() (now []Cmd, then, alternatives []Step) {
	var last planned
	var list *[]Step
	for i, r := range t.runs {
		switch {
		case r.run == NoCommand && r.when == nil:
			return now, then, alternatives
		case r.when == nil && r.after == 0 && list == nil:
			now = append(now, r.run)
			continue
		case list == nil || i == 0 || r.when != last.when || r.after != last.after:
			if list = &then; r.when != nil {
				list = &alternatives
			}
			s := Step{AfterMS: (r.after + time.Millisecond - 1).Milliseconds()}
			if r.when != nil && r.when == last.when {
				list = &(*list)[len(*list)-1].Then
			} else if r.when != nil {
				s.If, s.IfText = r.when.String(), *r.when
			}
			*list = append(*list, s)
		}
		s := &(*list)[len(*list)-1]
		s.Commands = append(s.Commands, r.run)
		last = r
	}
	// An alternative is done as a whole or not at all.
	alternatives = slices.DeleteFunc(alternatives, Step.unfit)
	return now, then, alternatives
}

// Counted returns a number of things, as [permit.Counted] does. Its format has the singular.
func Counted[N int | int64](n N, noun string) Text {
	return Text{english: permit.Counted(n, noun), format: "%d " + noun, args: []any{n}}
}

// Listed returns texts with a separator between them.
func Listed(separator string, list []Text) Text {
	t := list[0]
	for _, next := range list[1:] {
		t = say("%s%s%s", t, word(separator), next)
	}
	return t
}
