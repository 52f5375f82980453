// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/survey"
)

// visible returns text with all characters that are not printable escaped, as [survey.Visible] does.
func visible(text string) string { return survey.Visible(text) }

// visibleName is visible for a name by itself, as [survey.VisibleName] is.
func visibleName(name string) string { return survey.VisibleName(name) }

// oneLine returns the text of err as one visible line.
func oneLine(err error) string { return survey.OneLine(err) }

// brief returns a duration for people, as [survey.Brief] does.
func brief(d time.Duration) string { return survey.Brief(d) }

// orDash returns a number, or a dash if it is not known.
func orDash(n int64) string {
	if n == survey.Unknown {
		return "-"
	}
	return fmt.Sprint(n)
}
