// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"fmt"
	"strings"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Keys are the names under which Redis holds one limiter; see docs/design/protocol.md.
type Keys struct {
	Hash    string
	Value   [2]string // by Type
	Permits [2]string

	overall [3]any // those of Of(Overall), as arguments
}

// NewKeys returns the keys of the limiter of that name. For PerClient limiters they are those of the given
// client.
func NewKeys(name, clientID string) Keys {
	value, permits := Suffixed(name, "value"), Suffixed(name, "permits")
	return Keys{
		Hash:    name,
		Value:   [2]string{value, value + ":" + clientID},
		Permits: [2]string{permits, permits + ":" + clientID},
		overall: [3]any{name, value, permits},
	}
}

// Of returns the keys that hold a rate of type t: hash, value, permits.
func (k Keys) Of(t permit.Type) []string {
	return []string{k.Hash, k.Value[t], k.Permits[t]}
}

// Ahead returns the key of the reservations of a rate of type t.
func (k Keys) Ahead(t permit.Type) string {
	return k.beside("ahead", t)
}

// Everything returns the keys that a limiter may have, of both types.
func (k Keys) Everything() []string {
	return append(k.All(permit.Overall), k.Ahead(permit.Overall), k.Ahead(permit.PerClient))
}

func (k Keys) beside(suffix string, t permit.Type) string {
	return Suffixed(k.Hash, suffix) + strings.TrimPrefix(k.Value[t], k.Value[permit.Overall])
}

// appendTo appends the keys that hold a rate of type t to a command.
func (k *Keys) appendTo(cmd []any, t permit.Type) []any {
	if t == permit.Overall && k.overall[0] != nil {
		return append(cmd, k.overall[:]...)
	}
	return append(cmd, k.Hash, k.Value[t], k.Permits[t])
}

// All returns the keys of both types, those of t first.
func (k Keys) All(t permit.Type) []string {
	o := t.Other()
	return []string{k.Hash, k.Value[t], k.Permits[t], k.Value[o], k.Permits[o]}
}

// ClientsPattern returns a pattern of SCAN that matches the keys of all clients of the limiter, and few others.
func (k Keys) ClientsPattern() string {
	return EscapePattern(strings.TrimSuffix(k.Value[permit.Overall], "value")) + "[pv]*"
}

// ClientOf returns the id of the client to which a key of the limiter belongs. It reports false for any other key.
func (k Keys) ClientOf(key string) (id string, ok bool) {
	for _, shared := range []string{k.Value[permit.Overall], k.Permits[permit.Overall]} {
		if id, ok := strings.CutPrefix(key, shared+":"); ok && id != "" {
			return id, true
		}
	}
	return "", false
}

// EscapePattern returns the pattern of SCAN that matches text and nothing else.
func EscapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// Suffixed returns the key of a limiter's name and a suffix, by Redisson's rule. A name that contains a { keeps its
// braces as they are, whether or not they close. Any other name is put in braces, so its keys share a hash slot.
func Suffixed(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// CheckClusterSafe rejects names whose keys a cluster would place in different slots. Two keys share a slot if their
// hash tags are the same. Different tags may share a slot by chance, but CheckClusterSafe rejects them as well.
func CheckClusterSafe(name, clientID string) error {
	if tag, key, other := NewKeys(name, clientID).Apart(); key != "" {
		return fmt.Errorf("%w: %q hashes by %q but its key %q hashes by %q; use a name without braces, or with one hash tag", permit.ErrNameNotClusterSafe, name, tag, key, other)
	}
	return nil
}

// Apart returns the first key whose hash tag differs from that of the hash, with both tags. If there is none, key is
// empty.
func (k Keys) Apart() (tag, key, other string) {
	tag = hashTag(k.Hash)
	for _, key := range k.All(permit.Overall)[1:] {
		if other := hashTag(key); other != tag {
			return tag, key, other
		}
	}
	return tag, "", ""
}

// hashTag returns the part of the key that a cluster hashes. That is the text between the first { and the next }, or
// the whole key if there is no such pair or nothing is between the two.
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
