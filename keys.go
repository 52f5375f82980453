package ratelimiter

import (
	"fmt"
	"strings"
)

// keys are the names under which Redis holds one limiter; see docs/protocol.md.
type keys struct {
	hash    string
	value   [2]string // by RateType
	permits [2]string
}

func newKeys(name, clientID string) keys {
	value, permits := suffixed(name, "value"), suffixed(name, "permits")
	return keys{
		hash:    name,
		value:   [2]string{value, value + ":" + clientID},
		permits: [2]string{permits, permits + ":" + clientID},
	}
}

// of are the keys that hold a rate of type t: hash, value, permits.
func (k keys) of(t RateType) []string {
	return []string{k.hash, k.value[t], k.permits[t]}
}

// all are the keys of every type, those of t first.
func (k keys) all(t RateType) []string {
	o := t.other()
	return []string{k.hash, k.value[t], k.permits[t], k.value[o], k.permits[o]}
}

// suffixed is Redisson's rule: a name that has a { keeps its braces as they are, whether or not they
// close; any other name is put in braces, so that its keys share a hash slot.
func suffixed(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// checkClusterSafe refuses the names whose keys a cluster would place in different slots. Two keys
// share a slot when their hash tags are the same. Different tags can meet in one slot by chance, but
// a limiter that works by chance is refused too.
func checkClusterSafe(name, clientID string) error {
	k := newKeys(name, clientID)
	for _, key := range k.all(Overall)[1:] {
		if a, b := hashTag(k.hash), hashTag(key); a != b {
			return fmt.Errorf("%w: %q hashes by %q but its key %q by %q", ErrNameNotClusterSafe, name, a, key, b)
		}
	}
	return nil
}

// hashTag is the part of the key that a cluster hashes: what stands between the first { and the
// first } behind it when that is not empty, otherwise the whole key.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	tag, _, ok := strings.Cut(rest, "}")
	if !ok || tag == "" {
		return key
	}
	return tag
}
