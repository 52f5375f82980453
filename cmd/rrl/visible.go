// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/goredisson/ratelimiter/internal/survey"

// visible returns text with all characters that are not printable escaped, as [survey.Visible] does.
func visible(text string) string { return survey.Visible(text) }

// oneLine returns the text of err as one visible line.
func oneLine(err error) string { return survey.OneLine(err) }
