// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"mime"
	"net/http"
	"strings"
)

// NeedsBody asks a detector whether it needs the body of an answer, or the header where the detector has no say.
func NeedsBody(detector any, status int, header http.Header) bool {
	if s, ok := detector.(interface {
		NeedsBody(status int, header http.Header) bool
	}); ok {
		return s.NeedsBody(status, header)
	}
	return IsText(header.Get("Content-Type")) && !IsFile(status, header)
}

// IsText reports whether a platform may say in such a body that it throttles. An error that comes as an
// image is nobody's, and a stream is not to be held up for it.
func IsText(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	if t == "" || err != nil && t == "" {
		return true // unreadable: as good as none
	}
	switch {
	case t == "text/event-stream", t == "application/stream+json":
		return false
	case strings.HasPrefix(t, "text/"), strings.HasSuffix(t, "+json"), strings.HasSuffix(t, "+xml"):
		return true
	}
	return t == "application/json" || t == "application/xml" || t == "application/javascript"
}
