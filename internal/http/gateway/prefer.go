// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxPreferred is longer than any request waits, and fits a time.Duration in seconds.
const maxPreferred = 1 << 31

// preferredWait returns the wait of Prefer (RFC 7240 section 4.3). The first value counts, and one that is not a
// number of seconds is ignored, as the RFC demands.
func preferredWait(h http.Header) (time.Duration, bool) {
	for _, item := range listItems(h.Values("Prefer")) {
		preference, _, _ := strings.Cut(item, ";")
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return 0, false
		}
		return time.Duration(min(seconds, maxPreferred)) * time.Second, true
	}
	return 0, false
}

// listItems returns the items of a field that is a list. A comma within a quoted string does not separate them.
func listItems(lines []string) (items []string) {
	for _, line := range lines {
		quoted, from := false, 0
		for i := 0; i < len(line); i++ {
			switch {
			case quoted && line[i] == '\\':
				i++
			case line[i] == '"':
				quoted = !quoted
			case line[i] == ',' && !quoted:
				items, from = append(items, line[from:i]), i+1
			}
		}
		items = append(items, line[from:])
	}
	return items
}
