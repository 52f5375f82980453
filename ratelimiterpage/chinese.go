// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
)

//go:embed chinese.json
var chineseFile []byte

// chinese has the text of the page and of the doctor. TestChineseIsWhole checks that nothing is missing.
var chinese = func() (c struct {
	Texts   map[string]string // by the English text, or its format
	Reasons map[string]string // why something was not looked at, where the doctor says it and not Redis: by an expression that it matches
	Checks  map[string]struct{ Name, Means, Java, Go string }
}) {
	if err := json.Unmarshal(chineseFile, &c); err != nil {
		panic(err) // it is embedded
	}
	return c
}()

// translate returns a text in a language, with its values.
func translate(lang, text string, args ...any) string {
	if zh, ok := chinese.Texts[text]; ok && lang == "zh" {
		text = zh
	}
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// reason returns why something was not looked at in the language of the page. What Redis says stays.
func (v *pageView) reason(why string) string {
	for english, zh := range chinese.Reasons {
		if re := regexp.MustCompile(english); v.Lang == "zh" && re.MatchString(why) {
			return re.ReplaceAllString(why, zh)
		}
	}
	return why
}
