// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"
)

// DidYouMean returns the question whether suggestion was meant, which is like no other word what was typed. It returns
// nothing if the two are not much Alike.
func DidYouMean(typed, prefix, suggestion string) string {
	if !Alike(typed, suggestion) {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", prefix, suggestion)
}

// Alike reports whether two words differ in a third of their bytes at most.
func Alike(a, b string) bool { return a != "" && b != "" && 3*Distance(a, b) <= max(len(a), len(b)) }

// Distance returns how many bytes have to be put in, left out, replaced, or swapped with the next one to make b of a. Upper
// and lower case are equal.
func Distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
