// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxPlain bounds what an encoded body is decoded to: a few megabytes can decode to gigabytes.
const maxPlain = 256 << 20

var errTooLong = fmt.Errorf("the body decodes to more than %d MiB", maxPlain>>20)

// readable are the content codings (RFC 9110 §8.4.1) that the Transport can undo, with the standard library alone.
var readable = []string{"identity", "gzip", "x-gzip", "deflate"}

// contentCoding returns the coding of a body, "" for none.
func contentCoding(h http.Header) string {
	var list []string
	for coding := range strings.SplitSeq(strings.Join(h.Values("Content-Encoding"), ","), ",") {
		if coding = strings.ToLower(strings.TrimSpace(coding)); coding != "" && coding != "identity" {
			list = append(list, coding)
		}
	}
	return strings.Join(list, ", ")
}

// decoded returns a Reader that decodes body.
func decoded(coding string, body io.Reader) (io.Reader, error) {
	switch coding {
	case "":
		return body, nil
	case "gzip", "x-gzip":
		return gzip.NewReader(body)
	case "deflate":
		// RFC 9110 §8.4.1.2: the zlib format; some send the bare one.
		b := bufio.NewReader(body)
		if start, _ := b.Peek(2); len(start) == 2 && start[0]&0x0f == 8 && (int(start[0])<<8|int(start[1]))%31 == 0 {
			return zlib.NewReader(b)
		}
		return flate.NewReader(b), nil
	}
	return nil, fmt.Errorf("the content coding %q cannot be read", coding)
}

// A plainReader decodes a body as it is read. It is created before there is anything to read, and keeps the error
// that ended it.
type plainReader struct {
	source io.ReadCloser
	coding string
	plain  io.Reader
	left   int64
	err    error
}

// Read is that of io.Reader.
func (r *plainReader) Read(p []byte) (n int, err error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.plain == nil {
		if r.plain, r.err = decoded(r.coding, r.source); r.err != nil {
			return 0, r.err
		}
		r.left = maxPlain
	}
	n, r.err = r.plain.Read(p)
	if r.left -= int64(n); r.left < 0 && r.coding != "" {
		r.err = errTooLong
	}
	return n, r.err
}

// Close closes the source.
func (r *plainReader) Close() error { return r.source.Close() }

// acceptReadable returns the request. If a detector or a settlement needs the body of the response, it returns a copy
// whose Accept-Encoding offers only what the Transport can read: a platform that chooses br would keep its ban to
// itself. It leaves a request without Accept-Encoding alone, because net/http then adds gzip and decodes it, and one
// whose signature covers the field.
func (c *roundTrip) acceptReadable(r *http.Request) *http.Request {
	if r.Method == http.MethodHead || !c.needsBodies() {
		return r
	}
	var copied *http.Request
	for name, values := range r.Header {
		if !strings.EqualFold(name, "Accept-Encoding") {
			continue
		}
		offer, changed := onlyReadable(values)
		if !changed || signsEncoding(r) {
			continue
		}
		if copied == nil {
			copied = r.WithContext(r.Context())
			copied.Header = r.Header.Clone()
		}
		copied.Header[name] = []string{offer}
	}
	if copied != nil {
		return copied
	}
	return r
}

// needsBodies reports whether a limit is settled by the body of the response, or a detector may look at it.
func (c *roundTrip) needsBodies() bool {
	return c.plan.settles() || first(c.plan.detectors).mayNeedBody()
}

// mayNeedBody reports whether there are responses of which a detector looks at the body.
func (f first) mayNeedBody() bool {
	return slices.ContainsFunc(f, func(d Detector) bool {
		switch d := d.(type) {
		case headerDetector:
			return false
		case Signature:
			return d.readsBodies()
		case *Signature:
			return d.readsBodies()
		case first:
			return d.mayNeedBody()
		}
		return true
	})
}

// onlyReadable returns the field Accept-Encoding (RFC 9110 §12.5.3) without the codings that cannot be read, and whether there
// were any. A wildcard becomes gzip. If nothing is left it is identity, which RFC 9110 has a server fall back on even where the field
// excludes it.
func onlyReadable(values []string) (offer string, changed bool) {
	var kept []string
	accepts, wildcard := map[string]bool{}, "" // the wildcard with its weight
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		item = strings.TrimSpace(item)
		name, params, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case name == "":
		case isExcluded(params):
			accepts[name] = false
			kept = append(kept, item)
		case name == "*":
			wildcard, changed = item, true
		case slices.Contains(readable, name):
			accepts[name] = true
			kept = append(kept, item)
		default:
			changed = true
		}
	}
	if _, named := accepts["gzip"]; wildcard != "" && !named {
		kept, accepts["gzip"] = append(kept, "gzip"+strings.TrimPrefix(wildcard, "*")), true
	}
	if !slices.ContainsFunc(readable, func(name string) bool { return accepts[name] }) {
		kept = []string{"identity"}
	}
	return strings.Join(kept, ", "), changed
}

// isExcluded reports whether the parameters of an item give it the weight 0.
func isExcluded(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && q == 0
		}
	}
	return false
}

// signsEncoding reports whether a signature of the request covers Accept-Encoding, so that a platform would reject it with
// another value: AWS' Signature Version 4 names the fields in Authorization or in the query, RFC 9421 in Signature-Input.
func signsEncoding(r *http.Request) bool {
	signed := append(r.Header.Values("Authorization"), r.Header.Values("Signature-Input")...)
	if r.URL != nil {
		signed = append(signed, r.URL.RawQuery)
	}
	return slices.ContainsFunc(signed, func(s string) bool { return strings.Contains(strings.ToLower(s), "accept-encoding") })
}
