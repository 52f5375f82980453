// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
)

// An Envelope is the frame in which a platform's gateway says that it rejected a call. Whatever users of
// the platform wrote comes back through the same hosts, with 200: files and media, of any name, type and
// content; pages and JSON that quote texts and names. So a body's fields count only within the frame, and
// what costs much only where the body has nothing but these fields. docs/design/detection.md has the table.
//
// The host is no part of it: a proxy or a gateway of one's own has another name. Which hosts a detector
// sees is for the rule that it belongs to.
type Envelope struct {
	Status func(int) bool
	Types  []string // the media types, without their parameters
	Files  []string // ends of the paths where the platform serves what users uploaded
}

// JSON are the media types of most gateways.
var JSON = []string{"application/json"}

// Statuses returns a function that reports whether a status is one of the list.
func Statuses(list ...int) func(int) bool {
	return func(status int) bool { return slices.Contains(list, status) }
}

// MaxSize is more than any documented rejection has, and less than most files.
const MaxSize = 4 << 10

// Outside says why an answer does not come in the envelope; "" when it does.
func (e Envelope) Outside(status int, header http.Header) string {
	switch {
	case IsFile(status, header):
		return "the body is a file, or a part of one"
	case !e.Status(status):
		return "status " + strconv.Itoa(status)
	case !slices.Contains(e.Types, MediaType(header)):
		return "content type " + strconv.Quote(clip(strings.Join(header.Values("Content-Type"), ", ")))
	}
	return ""
}

// Serves reports whether the path of request, which may be nil, is one where the platform serves what users
// uploaded. An error's body is the gateway's there too.
func (e Envelope) Serves(request *http.Request, status int) bool {
	if request == nil || request.URL == nil || status >= 300 {
		return false
	}
	path := strings.ToLower(strings.TrimSuffix(muxpattern.CleanPath(request.URL.Path), "/"))
	return strings.Contains(path, "download") ||
		slices.ContainsFunc(e.Files, func(end string) bool { return strings.HasSuffix(path, end) })
}

// AtDownload is why an answer is ignored that a path gave where files are served.
const AtDownload = "the path serves files"

// IsFile reports whether a body is something that was stored, by its header: with a Content-Disposition
// of any kind, since inline has a file's name as well, or a range of it. No documented rejection has one.
func IsFile(status int, header http.Header) bool {
	return status == http.StatusPartialContent || len(header["Content-Disposition"]) > 0 || len(header["Content-Range"]) > 0
}

// MediaType is the one media type of a body, without parameters; "" where there is none, or several.
func MediaType(header http.Header) string {
	values := header.Values("Content-Type")
	if len(values) != 1 {
		return ""
	}
	t, _, _ := mime.ParseMediaType(values[0]) // it is there also when a parameter is malformed
	return t
}

// clip bounds what an event quotes of an answer.
func clip(s string) string { return s[:min(len(s), 80)] }
