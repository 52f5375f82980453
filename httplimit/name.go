// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
)

// Hash returns a replacement for a secret in a limiter's name: the first 16 bytes of its SHA-256 in hexadecimal,
// which other languages can compute as well. Someone who reads Redis cannot recover a long random token from it, but
// can try out secrets that are short or easy to guess, such as telephone numbers and passwords. Use [KeyedHash] and
// [WithHashKey] for those.
func Hash(secret string) string {
	return keyname.Hash(secret)
}

// KeyedHash returns a replacement for a secret in a limiter's name, if the fleet has a key for that: the first 16
// bytes of the HMAC-SHA256 of the secret under the key, in hexadecimal. Without the key nobody can try out secrets.
// All processes that share the limiter must use the same key, Java services included. With an empty key it is [Hash].
func KeyedHash(key []byte, secret string) string {
	return keyname.KeyedHash(key, secret)
}

// A template is a limiter's name with parts of the request in it.
type template []part

// A part is a text, or says which part of the request to insert.
type part struct {
	text string
	kind string // "" text, host, method, path, pathvalue, query, header
	hash bool
}

// parseTemplate parses a Limit.Name. Wildcards are those that every pattern of the rule has.
func parseTemplate(name string, wildcards []string) (template, error) {
	if name == "" {
		return nil, fmt.Errorf("it is empty")
	}
	var t template
	var text strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c != '{' && c != '}' {
			text.WriteByte(c)
			continue
		}
		if i+1 < len(name) && name[i+1] == c {
			text.WriteByte(c)
			i++
			continue
		}
		end := strings.IndexByte(name[i:], '}')
		if c == '}' || end < 0 {
			return nil, fmt.Errorf("%q has a single %c; {{ and }} are braces", name, c)
		}
		p, err := parsePart(name[i+1:i+end], wildcards)
		if err != nil {
			return nil, err
		}
		if text.Len() > 0 {
			t = append(t, part{text: text.String()})
			text.Reset()
		}
		t = append(t, p)
		i += end
	}
	if text.Len() > 0 {
		t = append(t, part{text: text.String()})
	}
	return t, nil
}

func parsePart(s string, wildcards []string) (part, error) {
	source, filter, filtered := strings.Cut(s, "|")
	if filtered && filter != "hash" {
		return part{}, fmt.Errorf("{%s}: %q is not known; hash is", s, filter)
	}
	kind, name, named := strings.Cut(source, ".")
	p := part{text: name, kind: kind, hash: filtered}
	switch kind {
	case "host", "method":
		if named {
			return part{}, fmt.Errorf("{%s}: %s has no parts", s, kind)
		}
		return p, nil
	case "path":
		if !named {
			return p, nil
		}
		p.kind = "pathvalue"
		if !slices.Contains(wildcards, name) {
			return part{}, fmt.Errorf("{%s}: the wildcard %q is not in every pattern of the rule", s, name)
		}
		return p, nil
	case "query", "header":
		if name == "" {
			return part{}, fmt.Errorf("{%s} needs a name, for example {%s.NAME}", s, kind)
		}
		return p, nil
	}
	return part{}, fmt.Errorf("{%s} is not known; {host}, {method}, {path}, {path.NAME}, {query.NAME}, {header.NAME} are", s)
}

// wildcards returns the names of the wildcards that all patterns have.
func wildcards(patterns []string) []string {
	var all []string
	for i, p := range patterns {
		var names []string
		for _, segment := range strings.Split(p, "/") {
			if name, ok := strings.CutPrefix(segment, "{"); ok {
				names = append(names, strings.TrimSuffix(strings.TrimSuffix(name, "}"), "..."))
			}
		}
		if i == 0 {
			all = names
			continue
		}
		all = slices.DeleteFunc(all, func(s string) bool { return !slices.Contains(names, s) })
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "$" })
}

// constant reports whether the name is the same for all requests.
func (t template) constant() bool {
	return !slices.ContainsFunc(t, func(p part) bool { return p.kind != "" })
}

// expand returns the name for a request that has path values; query is that of its URL, and hashKey that of
// WithHashKey.
func (t template) expand(r *http.Request, query func() url.Values, hashKey []byte) string {
	if len(t) == 1 && t[0].kind == "" {
		return t[0].text
	}
	var b strings.Builder
	for _, p := range t {
		var value string
		switch p.kind {
		case "":
			b.WriteString(p.text)
			continue
		case "host":
			value = r.Host
		case "method":
			value = r.Method
		case "path":
			value = r.URL.Path
		case "pathvalue":
			value = r.PathValue(p.text)
		case "query":
			value = query().Get(p.text)
		case "header":
			value = r.Header.Get(p.text)
		}
		if p.hash {
			b.WriteString(KeyedHash(hashKey, value))
		} else {
			b.WriteString(keyname.Part(value, p.kind == "path"))
		}
	}
	return b.String()
}
