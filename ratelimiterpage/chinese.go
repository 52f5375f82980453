// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
)

//go:embed chinese.json
var chineseFile []byte

// chinese returns the text of the page and of the doctor. TestChineseIsWhole checks that nothing is missing.
var chinese = sync.OnceValue(func() (c struct {
	Texts   map[string]string // by the English text, or its format
	Reasons map[string]string // why something cannot be looked at or done, where it is not Redis that says so: by an expression that it matches
	Checks  map[string]struct{ Name, Means, Java, Go string }
}) {
	if err := json.Unmarshal(chineseFile, &c); err != nil {
		panic(err) // it is embedded
	}
	return c
})

// reasons returns the Reasons of chinese by their expressions.
var reasons = sync.OnceValue(func() map[*regexp.Regexp]string {
	of := map[*regexp.Regexp]string{}
	for english, zh := range chinese().Reasons {
		of[regexp.MustCompile(english)] = zh
	}
	return of
})

// translate returns a text in a language, with its values. What Redis says, and what somebody has named, stays.
func translate(lang, text string, args ...any) string {
	if lang == "zh" {
		if zh, ok := chinese().Texts[text]; ok {
			text = zh
		} else if len(args) == 0 {
			text = reason(text)
		}
	}
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// reason returns why something cannot be done, in Chinese.
func reason(why string) string {
	for english, zh := range reasons() {
		if english.MatchString(why) {
			return english.ReplaceAllString(why, zh)
		}
	}
	return why
}
