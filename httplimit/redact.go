// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"net/url"
	"strings"
)

// replacement stands in a URL for what [Redact] and [RedactURL] remove from it.
const replacement = "REDACTED"

// Redact returns err without the secrets of the URLs in it, for logs. http.Client wraps every error in a *url.Error
// whose text has the whole URL of the request, and the URL of a robot is all that one needs to speak in its name.
// Redact replaces the URL of each *url.Error in err by the result of [RedactURL], in its text and in the text of the
// errors around it. errors.Is and errors.As work as on err, except for the URL. If err contains no *url.Error, Redact
// returns err itself.
//
// Redact finds secrets nowhere else: an error that quotes a request's body or a header keeps what it quotes.
func Redact(err error) error {
	found := urlErrors(err, nil)
	if len(found) == 0 {
		return err
	}
	if outer, ok := err.(*url.Error); ok {
		return &url.Error{Op: outer.Op, URL: redactText(outer.URL), Err: Redact(outer.Err)}
	}
	text := err.Error()
	for _, e := range found {
		if e.URL != "" {
			text = strings.ReplaceAll(text, e.URL, redactText(e.URL))
		}
	}
	return &redacted{text, err}
}

// RedactURL returns the URL as text without anything that may be a secret. It removes user information, the values of
// the query, the fragment, and segments of the path that do not look like words, such as a robot's token. It keeps
// the scheme, the host and the names of the parameters, as in
// https://oapi.dingtalk.com/robot/send?access_token=REDACTED.
func RedactURL(u *url.URL) string {
	r := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.Opaque != "" {
		r.Opaque = replacement
	}
	if u.User != nil {
		r.User = url.User(replacement)
	}
	segments := strings.Split(u.Path, "/")
	for i, s := range segments {
		if looksSecret(s) || i > 0 && strings.EqualFold(segments[i-1], "hook") && s != "" {
			segments[i] = replacement
		}
	}
	r.Path = strings.Join(segments, "/")
	var query []string
	for _, pair := range strings.FieldsFunc(u.RawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
		if name, _, ok := strings.Cut(pair, "="); ok {
			query = append(query, name+"="+replacement)
		} else {
			query = append(query, replacement) // a parameter without a value may be the secret itself
		}
	}
	r.RawQuery = strings.Join(query, "&")
	return r.String()
}

// looksSecret reports whether a segment of a path looks like a token and not like a word: it is long, or is not short
// and has a digit.
func looksSecret(segment string) bool {
	return len(segment) >= 24 || len(segment) >= 12 && strings.ContainsAny(segment, "0123456789")
}

// redactText is RedactURL for a URL as text. One that cannot be parsed is taken out as a whole.
func redactText(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return replacement
	}
	return RedactURL(u)
}

// urlErrors appends every *url.Error in the tree of err to list.
func urlErrors(err error, list []*url.Error) []*url.Error {
	if e, ok := err.(*url.Error); ok {
		list = append(list, e)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return urlErrors(inner, list)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			list = urlErrors(inner, list)
		}
	}
	return list
}

// A redacted error has a text of its own. It has no Unwrap, since that would hand out the URL.
type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string { return r.text }

// Is reports whether target is in the tree of the error.
func (r *redacted) Is(target error) bool { return errors.Is(r.err, target) }

// As finds what errors.As finds in the error. A *url.Error it finds redacted.
func (r *redacted) As(target any) bool {
	if !errors.As(r.err, target) {
		return false
	}
	if u, ok := target.(**url.Error); ok {
		*u = Redact(*u).(*url.Error)
	}
	return true
}
