// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"strings"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// layout is part of the Redis keys and is raised when all of what they hold is written in another way, so that
// processes of the old and the new version do not read each other's.
const layout = "limit2"

// stateName returns what stands for a script in the Redis keys: its name, and after it which way of writing the state it is, if it is not
// the first one of the layout. Processes of a version that writes it in another way do not read it.
func stateName(s *dispatch.Script) string {
	switch s {
	case calendarQuotaScript, smoothScript:
		return s.Name
	}
	return s.Name + "2"
}

// redisKeys returns the Redis keys of the limiter of one key.
func (c *config) redisKeys(key string) []string {
	return redisKeys(c.name, key, c.signature, c.now().script.Keys)
}

// redisKeys returns the Redis keys of the limiter of one key. Their hash tag is that key, or the name if it is
// empty, so that they share a slot. The parameters are part of the Redis keys, since the state of one limiter
// means nothing to a limiter with others, unless WithFleetParameters. Of the second, which few algorithms have, is what was granted to
// which process; the others have that in the first.
func redisKeys(name, key, signature string, count int) []string {
	state := layout + ":{" + name + "}:" + signature
	if key != "" {
		state = layout + ":" + name + ":{" + braces.Replace(key) + "}:" + signature
	}
	if count == 1 {
		return []string{state}
	}
	return []string{state, state + ":grants"}
}

// braces escapes what would end a hash tag early. With an empty tag the keys would be in different slots.
var braces = strings.NewReplacer("%", "%25", "}", "%7D")

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}") {
		return invalid("the name %q is empty or contains braces, which are kept for the hash tag", name)
	}
	return nil
}
