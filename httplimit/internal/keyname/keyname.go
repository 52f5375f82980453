// SPDX-License-Identifier: Apache-2.0

// Package keyname turns parts of a request into parts of a limiter's name, and knows what HTTP lets a name be.
package keyname

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// MaxPart is how long a part of a request may be in a limiter's name, escaped; a longer one is hashed.
const MaxPart = 128

// MinKey is how long a key of KeyedHash is at least, so that it cannot be tried out in place of the secret.
const MinKey = 16

// Hash returns the first 16 bytes of the SHA-256 of s in hexadecimal.
func Hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// KeyedHash returns the first 16 bytes of the HMAC-SHA256 of s in hexadecimal, or Hash where key is empty.
func KeyedHash(key []byte, s string) string {
	if len(key) == 0 {
		return Hash(s)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(s))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// Escape keeps what is harmless in a key's name. Colons and braces are not: one would let two parts
// pass for others, the other moves the key to another hash slot. A result longer than MaxPart is only the
// start of the escaped text.
func Escape(s string, slashes bool) string {
	plain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("-._~@", c) >= 0 || c == '/' && slashes
	}
	i := 0
	for i < len(s) && plain(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	b := []byte(s[:i])
	for ; i < len(s) && len(b) <= MaxPart; i++ { // no further: it is hashed then
		if plain(s[i]) {
			b = append(b, s[i])
		} else {
			b = fmt.Appendf(b, "%%%02X", s[i])
		}
	}
	return string(b)
}

// Part returns s as a part of a limiter's name: escaped, or hashed where that is longer than MaxPart.
func Part(s string, slashes bool) string {
	if escaped := Escape(s, slashes); len(escaped) <= MaxPart {
		return escaped
	}
	return Hash(s)
}

// IsToken reports whether s is a token of HTTP, such as the name of a field or a scheme (RFC 9110 §5.6.2).
func IsToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
	})
}
