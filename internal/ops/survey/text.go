// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goredisson/ratelimiter/internal/ops/shell"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// Visible returns text with all characters that are not printable replaced by Go's escapes, as in \x1b. Use it for everything
// that others can choose: errors of servers, numbers in requests, and, as [VisibleName], names.
func Visible(text string) string {
	if shell.Printable(text) {
		return text
	}
	return escaped(text, false)
}

// looksEscaped finds what would be taken for one of Go's escapes.
var looksEscaped = regexp.MustCompile(`\\[abfnrtvxuU\\]`)

// VisibleName is [Visible] for a name, a key or a value by itself: two that differ are printed differently, because backslashes are
// escaped, too, if anything is, or looks as if it were.
func VisibleName(name string) string {
	if shell.Printable(name) && !looksEscaped.MatchString(name) {
		return name
	}
	return escaped(name, true)
}

func escaped(text string, backslashes bool) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case strconv.IsPrint(r) && (r != '\\' || !backslashes):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// quoted finds what is quoted in an error, also what is short: what lies between two quoted names is none.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// ShortNames returns a text in which quoted names are not longer than 64 bytes.
func ShortNames(text string) string {
	return quoted.ReplaceAllStringFunc(text, func(name string) string {
		return `"` + permit.Shorten(name[1:len(name)-1]) + `"`
	})
}

// OneLine returns the text of err as one visible line, in which names are as [ShortNames] has them.
func OneLine(err error) string {
	return Visible(ShortNames(strings.Join(strings.Fields(err.Error()), " ")))
}

// Base64 returns a name in base64, or nothing if it can be typed and printed as it is.
func Base64(name string) string {
	if shell.Printable(name) && !strings.Contains(name, "\ufffd") {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(name))
}

// Brief returns a duration for people: two units, at least milliseconds, and a dash for one below 0.
func Brief(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d == 0:
		return "0"
	case d < 10*time.Second:
		return fmt.Sprint(d.Round(time.Millisecond))
	case d < time.Minute:
		return fmt.Sprint(d.Round(100 * time.Millisecond))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// RateText returns a rate as in 5/10s.
func RateText(r permit.Rate) string {
	s := fmt.Sprintf("%d/%s", r.Permits, Exact(r.Interval))
	if r.MinGap > 0 {
		s += " gap " + Exact(r.MinGap)
	}
	return s
}

// Exact returns a duration as a Duration prints itself, without units that are 0.
func Exact(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
