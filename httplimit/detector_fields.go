// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A fieldItem is an item of a List of RFC 9651 (structured field values), with the parameters that are
// integers. Parameters of other types are parsed and dropped.
type fieldItem struct {
	name     string // a String or a Token
	integers map[string]int64
}

// parseItems reads a field that is a List of Items which are Strings or Tokens, and reports whether it is one. Nothing of
// a field with an error is kept: RFC 9651 §4.2 and the RateLimit draft have such a field ignored.
func parseItems(lines []string) ([]fieldItem, bool) {
	p := fieldParser{strings.Trim(strings.Join(lines, ","), " ")}
	if p.rest == "" {
		return nil, true
	}
	var items []fieldItem
	for {
		item, ok := p.item()
		if !ok {
			return nil, false
		}
		items = append(items, item)
		p.skip(" \t")
		if p.rest == "" {
			return items, true
		}
		if !p.eat(',') {
			return nil, false
		}
		p.skip(" \t")
	}
}

type fieldParser struct{ rest string }

func (p *fieldParser) item() (fieldItem, bool) {
	item := fieldItem{integers: map[string]int64{}}
	quoted := strings.HasPrefix(p.rest, `"`)
	raw, ok := p.bare()
	if !ok || !quoted && !isTokenStart(raw[0]) {
		return item, false
	}
	item.name = raw
	for p.eat(';') {
		p.skip(" ")
		key := p.take(isKey)
		if key == "" || !isLower(key[0]) && key[0] != '*' {
			return item, false
		}
		delete(item.integers, key) // the last of a key that comes twice counts
		if !p.eat('=') {
			continue // Boolean true
		}
		first := p.rest
		raw, ok := p.bare()
		if !ok {
			return item, false
		}
		if n, err := strconv.ParseInt(raw, 10, 64); err == nil && first[0] != '"' {
			item.integers[key] = n
		}
	}
	return item, true
}

// bare reads a bare item: of a String its content, of any other its text.
func (p *fieldParser) bare() (string, bool) {
	if p.rest == "" {
		return "", false
	}
	switch c := p.rest[0]; {
	case c == '"':
		return p.quoted()
	case c == '-' || isDigit(c):
		return p.number()
	case c == '@':
		p.rest = p.rest[1:]
		n, ok := p.number()
		return "@" + n, ok && !strings.Contains(n, ".")
	case c == '?':
		if len(p.rest) < 2 || p.rest[1] != '0' && p.rest[1] != '1' {
			return "", false
		}
		b := p.rest[:2]
		p.rest = p.rest[2:]
		return b, true
	case c == ':':
		b, rest, ok := strings.Cut(p.rest[1:], ":")
		p.rest = rest
		return ":" + b, ok && isBase64(b)
	case c == '%' && strings.HasPrefix(p.rest, `%"`):
		b, rest, ok := strings.Cut(p.rest[2:], `"`)
		p.rest = rest
		return "%" + b, ok && isDisplayString(b)
	case isTokenStart(c):
		return p.take(isToken), true
	}
	return "", false
}

func (p *fieldParser) quoted() (string, bool) {
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == '"':
			p.rest = p.rest[i+1:]
			return b.String(), true
		case c == '\\':
			i++
			if i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return "", false
			}
			b.WriteByte(p.rest[i])
		case c < ' ' || c > '~':
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// number reads an Integer of at most 15 digits, or a Decimal of at most 12 and 3.
func (p *fieldParser) number() (string, bool) {
	start := p.rest
	p.eat('-')
	whole := p.take(isDigit)
	if whole == "" || len(whole) > 15 {
		return "", false
	}
	if p.eat('.') {
		if part := p.take(isDigit); part == "" || len(part) > 3 || len(whole) > 12 {
			return "", false
		}
	}
	return start[:len(start)-len(p.rest)], true
}

func (p *fieldParser) eat(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *fieldParser) skip(chars string) { p.rest = strings.TrimLeft(p.rest, chars) }

func (p *fieldParser) take(is func(byte) bool) string {
	n := 0
	for n < len(p.rest) && is(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// isBase64 reports whether s is base64 as RFC 9651 §4.2.7 has it, with or without its padding.
func isBase64(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		if c := s[i]; !isLower(c|0x20) && !isDigit(c) && c != '+' && c != '/' {
			return false
		}
	}
	return len(s)%4 != 1
}

// isDisplayString reports whether s is the content of a Display String (RFC 9651 §4.2.10): ASCII in which % begins two
// lower-case hexadecimal digits, and UTF-8 when these are decoded.
func isDisplayString(s string) bool {
	var b []byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c < ' ' || c > '~':
			return false
		case c == '%':
			if i+2 >= len(s) || !isLowerHex(s[i+1]) || !isLowerHex(s[i+2]) {
				return false
			}
			n, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			c, i = byte(n), i+2
		}
		b = append(b, c)
	}
	return utf8.Valid(b)
}

func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isKey(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 }

func isTokenStart(c byte) bool { return isLower(c|0x20) || c == '*' }

func isToken(c byte) bool {
	return isTokenStart(c) || isDigit(c) || strings.IndexByte("!#$%&'+-.^_`|~:/", c) >= 0
}
