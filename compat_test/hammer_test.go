// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/goredisson/ratelimiter/internal/grantlog"
)

// javaFault matches what Redisson's callers may see while Redis is down.
var javaFault = regexp.MustCompile(`Redis(Connection|Timeout|ResponseTimeout|NodeNotFound|Loading|Retry)Exception|LOADING|ClosedChannel`)

// told waits for the reply to a hammer. When a thread made its request is not known, only when it got the permits.
func (c *pending) told(limit time.Duration) (told grantlog.Told, err error) {
	text, err := c.wait(limit)
	if err != nil {
		return told, err
	}
	var reply struct {
		Rejected int
		Errors   map[string]int // by their texts
		Grants   [][2]int64     // the clock of the JVM after the reply, in ms, and the permits
	}
	err = json.Unmarshal([]byte(text), &reply)
	told.Rejected, told.Errors, told.Unavailable = reply.Rejected, map[string]int{}, map[string]int{}
	for _, g := range reply.Grants {
		told.Grants = append(told.Grants, grantlog.Grant{End: time.UnixMilli(g[0]), Permits: g[1]})
	}
	for text, n := range reply.Errors {
		if javaFault.MatchString(text) {
			told.Unavailable[text[:min(len(text), 80)]] += n
		} else {
			told.Errors[text] += n
		}
	}
	return told, err
}

// forgetsCallers reports whether each rejection of a blocked acquire adds a link to a chain of futures, until the chain
// is too long for the stack of the thread that completes it. Then the permits are spent and the caller is never told
// (Redisson's issue 6959; 4.3.0 waits in a loop). Of the matrix these versions are 3.20.1, 3.34.1 and 3.52.0; earlier
// ones have no such chain.
func forgetsCallers(v version) bool { return v.since("3.17.0") && !v.since("4.3.0") }
