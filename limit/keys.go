// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"strings"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// stateName returns what stands for a script in the Redis keys: its name, and after it which way of writing the state it is, if it is not
// the first one of the layout. Processes of a version that writes it in another way do not read it.
func stateName(s *dispatch.Script) string {
	switch s {
	case calendarQuotaScript, smoothScript:
		return s.Name
	}
	return s.Name + "2"
}

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}") {
		return calls.Invalid("the name %q is empty or contains braces, which are kept for the hash tag", name)
	}
	return nil
}
