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
	Reasons map[string]string // why something was not looked at, where the doctor says it and not Redis: by an expression that it matches
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

// translate returns a text in a language, with its values.
func translate(lang, text string, args ...any) string {
	if lang == "zh" {
		if zh, ok := chinese().Texts[text]; ok {
			text = zh
		}
	}
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// reason returns why something was not looked at in the language of the page. What Redis says stays.
func (v *pageView) reason(why string) string {
	if v.Lang != "zh" {
		return why
	}
	for english, zh := range reasons() {
		if english.MatchString(why) {
			return english.ReplaceAllString(why, zh)
		}
	}
	return why
}
