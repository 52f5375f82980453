// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Keys returns the Redis keys of s.
func (s *Shared) Keys() []string { return slices.Clone(s.redisKeys(s.Now())) }

// Label returns what errors call the limiter: its name and, since the key may be long or a secret, the first digits
// of the key's SHA-256.
func (s *Shared) Label() string {
	if s.Key == "" {
		return s.String()
	}
	sum := sha256.Sum256([]byte(s.Key))
	return fmt.Sprintf("%q for a key of hash %x", s.config.Name, sum[:4])
}

// String returns the name of the limiter and its key.
func (s *Shared) String() string {
	if s.Key == "" {
		return fmt.Sprintf("%q", s.config.Name)
	}
	return fmt.Sprintf("%q for %q", s.config.Name, s.Key)
}

// redisKeys returns the Redis keys of the state by a setting.
func (s *Shared) redisKeys(n *Setting) []string {
	if n.Generation == "" {
		return s.keys
	}
	return keysOf(s.config.Name, s.Key, s.config.Signature+":"+n.Generation, len(s.keys))
}

// Layout is part of the Redis keys and is raised when all of what they hold is written in another way, so that
// processes of the old and the new version do not read each other's.
const Layout = "limit2"

// keysOf returns the Redis keys of the limiter of one key. Their hash tag is that key, or the name if it is
// empty, so that they share a slot. The parameters are part of the Redis keys, since the state of one limiter
// means nothing to a limiter with others, unless WithFleetParameters. Of the second, which few algorithms have, is what was granted to
// which process; the others have that in the first.
func keysOf(name, key, signature string, count int) []string {
	state := Layout + ":{" + name + "}:" + signature
	if key != "" {
		state = Layout + ":" + name + ":{" + braces.Replace(key) + "}:" + signature
	}
	if count == 1 {
		return []string{state}
	}
	return []string{state, state + ":grants"}
}

// braces escapes what would end a hash tag early. With an empty tag the keys would be in different slots.
var braces = strings.NewReplacer("%", "%25", "}", "%7D")
