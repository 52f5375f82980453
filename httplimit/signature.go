// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/internal/envelope"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
)

// A Signature is a [Detector] that recognizes a platform's rejections by status, header and body. A response has the
// signature if every field that is set matches. A file, or a part of one, never has it.
//
// The values of Paths, Header, JSON and XML are patterns: * matches any characters, | separates alternatives, and !
// at the beginning negates the pattern. A negated pattern matches an absent value too; any other pattern matches only
// a value that is present.
type Signature struct {
	// Status has the status codes, at least one.
	Status []int
	// Paths are patterns of the request's path; one of them must match.
	Paths []string
	// Header has a pattern for each field of the response's header.
	Header map[string]string
	// JSON has a pattern for the value at each path of a body that is JSON: "error.code", "errors.0.code". A number or a
	// boolean is compared as it is written. A * in place of a name or number is each element of a list or member of an
	// object: "errors.*.type" (GraphQL). A pattern then matches if any of the values does, a negated one if none does, and
	// the patterns of two paths may match two elements. A path begins at the body's outermost value. With a * there, it leads into what users wrote as
	// well.
	JSON map[string]string
	// XML has a pattern for the text of the element at each path of a body that is XML: "Error.Code". If there are several
	// elements, a pattern matches if any of their texts does, a negated one if none does. Name spaces do not matter.
	XML map[string]string
	// Reason is the Reason of the Verdict. The default is the first value that matched in JSON or XML, by the order of
	// the paths, or the status.
	Reason string
	// Scope and Banned are those of the Verdict.
	Scope  Scope
	Banned bool
	// Wait is how long calls have to wait if the response does not say; 0 means that it is not known.
	Wait time.Duration
	// WaitFrom has the fields of the header that say how long to wait. The value may be a number of seconds, or of
	// milliseconds if the name ends in ms; a duration such as 6m0s or 30 seconds; or an instant, as a date of HTTP or
	// RFC 3339 or in seconds or milliseconds since 1970. Of several fields, lines, or elements of a line the longest
	// plausible wait counts, at most 366 days. The default is Retry-After and Retry-After-Ms.
	WaitFrom []string
	// WaitFromBody has the paths of values in the body that say how long to wait, in the forms of WaitFrom. If the
	// header says so too, the longer wait counts. The body is XML if XML is set, otherwise JSON, with paths as in JSON:
	// "parameters.retry_after" (Telegram), "error.details.*.retryDelay" (Gemini), "retry_after_ms" (Matrix).
	WaitFromBody []string
	// MaxWait bounds the wait that the response asks for, up to a day. The default is that of WithMaxRetryAfter.
	MaxWait time.Duration
}

// Detect returns a verdict that is Throttled if the response has the signature, otherwise the zero Verdict.
func (s Signature) Detect(r *Response) Verdict {
	if !s.mayMatch(r.Status, r.Header) || !s.matchesPath(r.Request) {
		return Verdict{}
	}
	reason, ok := s.matchesBody(r)
	if !ok {
		return Verdict{}
	}
	v := Verdict{Throttled: true, Scope: s.Scope, Banned: s.Banned, Reason: reason}
	if s.Reason != "" {
		v.Reason = s.Reason
	}
	wait, known := s.wait(r)
	switch {
	case known:
		most := s.MaxWait
		if most == 0 {
			most = r.longestRetryAfter()
		}
		return v.bounded(r, wait, most)
	case s.Wait > 0:
		return v.bounded(r, s.Wait, maxPenalty)
	}
	return v
}

// NeedsBody reports whether the body decides: see [BodySelector].
func (s Signature) NeedsBody(status int, header http.Header) bool {
	return s.readsBodies() && s.mayMatch(status, header)
}

// readsBodies reports whether there are responses whose body decides.
func (s Signature) readsBodies() bool { return len(s.JSON)+len(s.XML)+len(s.WaitFromBody) > 0 }

func (s Signature) mayMatch(status int, header http.Header) bool {
	if !slices.Contains(s.Status, status) || envelope.IsFile(status, header) {
		return false
	}
	for name, pattern := range s.Header {
		values := header.Values(name)
		if len(values) > 1 {
			values = []string{strings.Join(values, ", ")}
		}
		if !matchPattern(pattern, values...) {
			return false
		}
	}
	return true
}

func (s Signature) matchesPath(r *http.Request) bool {
	if len(s.Paths) == 0 {
		return true
	}
	if r == nil || r.URL == nil {
		return false
	}
	cleaned := muxpattern.CleanPath(r.URL.Path)
	return slices.ContainsFunc(s.Paths, func(pattern string) bool { return matchPattern(pattern, cleaned) })
}

// matchesBody also returns the reason.
func (s Signature) matchesBody(r *Response) (reason string, ok bool) {
	reason = fmt.Sprintf("status %d", r.Status)
	for _, body := range []struct {
		patterns map[string]string
		parse    func(body []byte, complete bool) func(path string) []string
	}{{s.JSON, envelope.JSONTexts}, {s.XML, envelope.XMLTexts}} {
		if len(body.patterns) == 0 {
			continue
		}
		textsAt := body.parse(r.Body, r.Complete)
		for i, at := range slices.Sorted(maps.Keys(body.patterns)) {
			pattern, values := body.patterns[at], textsAt(at)
			if !matchPattern(pattern, values...) {
				return "", false
			}
			if n := slices.IndexFunc(values, func(v string) bool { return matchPattern(pattern, v) }); i == 0 && n >= 0 {
				reason = values[n]
			}
		}
	}
	return reason, true
}

// wait returns the longest wait that the header and the body name.
func (s Signature) wait(r *Response) (longest time.Duration, known bool) {
	fields := s.WaitFrom
	if len(fields) == 0 {
		fields = envelope.RetryAfterFields
	}
	w := envelope.Waits{Header: r.Header, Now: r.Now}
	for _, name := range fields {
		w.AddField(name)
	}
	if len(s.WaitFromBody) > 0 {
		textsAt := envelope.JSONTexts
		if len(s.XML) > 0 {
			textsAt = envelope.XMLTexts
		}
		find := textsAt(r.Body, r.Complete)
		for _, at := range s.WaitFromBody {
			for _, text := range find(at) {
				w.Add(at, text)
			}
		}
	}
	return w.Longest, w.Known
}

// matchPattern reports whether any of the values that are there matches a pattern of a Signature, or none if it is negated.
func matchPattern(pattern string, values ...string) bool {
	if rest, ok := strings.CutPrefix(pattern, "!"); ok {
		return !matchPattern(rest, values...)
	}
	for alternative := range strings.SplitSeq(pattern, "|") {
		if slices.ContainsFunc(values, func(v string) bool { return matchStars(alternative, v) }) {
			return true
		}
	}
	return false
}

// matchStars reports whether value matches a pattern whose stars stand for any characters.
func matchStars(pattern, value string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return value == pattern
	}
	if len(value) < len(first)+len(last) || !strings.HasPrefix(value, first) || !strings.HasSuffix(value, last) {
		return false
	}
	value = value[len(first) : len(value)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(value, part)
		if !found {
			return false
		}
		value = after
	}
	return true
}

// check adds what is wrong with the signature.
func (s Signature) check(p problems) {
	if len(s.Status) == 0 {
		p.add("status", "there is none; a signature has one at least")
	}
	for _, status := range s.Status {
		if status < 100 || status > 599 {
			p.add("status", "%d is no status of HTTP", status)
		}
	}
	if len(s.JSON) > 0 && len(s.XML) > 0 {
		p.add("xml", "a body is either JSON or XML")
	}
	if slices.Contains(s.Status, http.StatusOK) && len(s.JSON)+len(s.XML)+len(s.Header) == 0 {
		p.add("status", "200 alone is every response; json, xml or header says which")
	}
	for field, patterns := range map[string]map[string]string{"header": s.Header, "json": s.JSON, "xml": s.XML} {
		for at, pattern := range patterns {
			wrong := ""
			if field != "header" {
				wrong = envelope.CheckPath(at, field == "xml")
			} else if !keyname.IsToken(at) {
				wrong = "is no name of a header field"
			}
			if wrong != "" {
				p.add(field, "%q %s", at, wrong)
			} else if strings.Trim(pattern, "!") == "" {
				p.add(field+"."+at, "the pattern is empty; * is any value, !* none")
			}
		}
	}
	for i, pattern := range s.Paths {
		if !strings.HasPrefix(strings.TrimPrefix(pattern, "!"), "/") && !strings.HasPrefix(strings.TrimPrefix(pattern, "!"), "*") {
			p.add(fmt.Sprintf("paths[%d]", i), "%q begins with neither / nor *", pattern)
		}
	}
	for i, name := range s.WaitFrom {
		if !keyname.IsToken(name) {
			p.add(fmt.Sprintf("wait_from[%d]", i), "%q is no name of a header field", name)
		}
	}
	for i, at := range s.WaitFromBody {
		if wrong := envelope.CheckPath(at, len(s.XML) > 0); wrong != "" {
			p.add(fmt.Sprintf("wait_from_body[%d]", i), "%q %s", at, wrong)
		}
	}
	if s.Wait < 0 || s.Wait > maxPenalty {
		p.add("wait", "%v is not in 0..%v", s.Wait, maxPenalty)
	}
	if s.MaxWait < 0 || s.MaxWait > maxPenalty {
		p.add("max_wait", "%v is not in 0..%v", s.MaxWait, maxPenalty)
	}
}
