package httplimit

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/goredisson/ratelimiter/httplimit/internal/muxpattern"
)

// An envelope is the frame in which a platform's gateway says that it refused a call. Whatever users of
// the platform wrote comes back through the same hosts, with 200: files and media, of any name, type and
// content; pages and JSON that quote texts and names. So a body's fields count only within the frame, and
// what costs much only where the body has nothing but these fields. docs/outbound.md has the table.
//
// The host is no part of it: a proxy or a gateway of one's own has another name. Which hosts a detector
// sees is for the rule that it belongs to.
type envelope struct {
	status func(int) bool
	types  []string // the media types, without their parameters
	files  []string // ends of the paths where the platform serves what users uploaded
}

// jsonOnly are the media types of most gateways.
var jsonOnly = []string{"application/json"}

func only(list ...int) func(int) bool {
	return func(status int) bool { return slices.Contains(list, status) }
}

// maxEnvelope is more than any documented refusal has, and less than most files.
const maxEnvelope = 4 << 10

// outside says why r does not come in the envelope; "" when it does.
func (e envelope) outside(r *Response) string {
	switch {
	case isFile(r.Status, r.Header):
		return "the body is a file, or a part of one"
	case !e.status(r.Status):
		return "status " + strconv.Itoa(r.Status)
	case !slices.Contains(e.types, mediaType(r.Header)):
		return "content type " + strconv.Quote(clip(strings.Join(r.Header.Values("Content-Type"), ", ")))
	}
	return ""
}

// serves reports whether the path is one where the platform serves what users uploaded. An error's body is
// the gateway's there too.
func (e envelope) serves(r *Response) bool {
	if r.Request == nil || r.Request.URL == nil || r.Status >= 300 {
		return false
	}
	path := strings.ToLower(strings.TrimSuffix(muxpattern.CleanPath(r.Request.URL.Path), "/"))
	return strings.Contains(path, "download") ||
		slices.ContainsFunc(e.files, func(end string) bool { return strings.HasSuffix(path, end) })
}

const atDownload = "the path serves files"

// exact reports whether the body is all there, small, and one object with no members but those of the names.
func (r *Response) exact(names ...string) bool {
	return r.Complete && len(r.Body) <= maxEnvelope && r.json().only(names...)
}

// isFile reports whether a body is something that was stored, by its header: with a Content-Disposition
// of any kind, since inline has a file's name as well, or a range of it. No documented refusal has one.
func isFile(status int, header http.Header) bool {
	return status == http.StatusPartialContent || len(header["Content-Disposition"]) > 0 || len(header["Content-Range"]) > 0
}

// mediaType is the one media type of a body, without parameters; "" where there is none, or several.
func mediaType(header http.Header) string {
	values := header.Values("Content-Type")
	if len(values) != 1 {
		return ""
	}
	t, _, _ := mime.ParseMediaType(values[0]) // it is there also when a parameter is malformed
	return t
}

// clip bounds what an event quotes of an answer.
func clip(s string) string { return s[:min(len(s), 80)] }

// ignored is the verdict of an answer that looks like a refusal and is none.
func ignored(reason, why string) Verdict { return Verdict{Reason: reason, Ignored: why} }
