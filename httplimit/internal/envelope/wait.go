// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxPlausible is the longest wait that a platform can mean, that for a quota of a year. What is longer is a number in
// another unit, or nonsense: it counts only where nothing else is said, and the bounds of the detectors cut it.
const maxPlausible = 366 * 24 * time.Hour

// RetryAfterFields are the fields that ask to wait where a platform has none of its own. Azure and OpenAI send the second.
var RetryAfterFields = []string{"Retry-After", "Retry-After-Ms"}

// RetryAfter is how long the RetryAfterFields ask to wait, and false where none does: see [Wait].
func RetryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	return Wait(header, now, RetryAfterFields...)
}

// Wait is how long the fields of a header ask to wait, and false where none does. The longest plausible wait of all fields,
// of all lines of a field and of all elements of a line counts; see [ParseWait] for how each is written.
//
// RFC 9110 §10.2.3 allows one line, which is 1*DIGIT or a date in GMT. The rest is leniency: platforms and the proxies
// before them write the others, and whoever does not understand them comes back at once.
func Wait(header http.Header, now time.Time, fields ...string) (time.Duration, bool) {
	w := Waits{Header: header, Now: now}
	for _, field := range fields {
		w.AddField(field)
	}
	return w.Longest, w.Known
}

// Waits are the waits that an answer names, of which the longest plausible counts.
type Waits struct {
	Header  http.Header // of the answer
	Now     time.Time   // when it arrived
	Longest time.Duration
	Known   bool // there is one
}

// AddField adds what a field of the header says.
func (w *Waits) AddField(field string) {
	for _, line := range w.Header.Values(field) {
		if w.Add(field, line) {
			continue
		}
		list := strings.Split(line, ",")
		for i := 0; i < len(list); i++ {
			if i+1 < len(list) && w.Add(field, list[i]+","+list[i+1]) {
				i++ // a date has a comma of its own
			} else {
				w.Add(field, list[i])
			}
		}
	}
}

// Add adds a text, and reports whether it is a wait.
func (w *Waits) Add(field, text string) bool {
	d, ok := ParseWait(w.Header, w.Now, field, text)
	if ok && (!w.Known || d <= maxPlausible && (d > w.Longest || w.Longest > maxPlausible)) {
		w.Longest, w.Known = d, true
	}
	return ok
}

var (
	decimal     = regexp.MustCompile(`^\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)
	inMillis    = regexp.MustCompile(`([_-][mM]|[a-z]M)[sS]$`)
	oneDuration = regexp.MustCompile(`^\s*(\d+\.?\d*|\.\d+)\s*([a-zµ]+)\.?`)
)

// units are the units of durations as Go and people write them.
var units = map[string]time.Duration{"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond}

func init() {
	for unit, names := range map[time.Duration]string{
		time.Millisecond: "ms msec msecs millis millisecond milliseconds", time.Second: "s sec secs second seconds",
		time.Minute: "m min mins minute minutes", time.Hour: "h hr hrs hour hours", 24 * time.Hour: "d day days",
	} {
		for name := range strings.FieldsSeq(names) {
			units[name] = unit
		}
	}
}

// ParseWait returns the wait that a field of an answer has as its text, and false where that is none:
//
//   - a number of seconds, or of milliseconds in a field whose name ends in ms, such as retry_after_ms: 30, 30.0, "30";
//     from 1e9 on it is an instant in seconds since 1970, from 1e11 on in milliseconds
//   - a duration: 40s, 6m0.5s, 1 minute, 30 seconds
//   - an instant: a date of HTTP in any of its three forms, also in UTC or with an offset; RFC 3339, with or without its T, and
//     without an offset in UTC; seconds since 1970 with @ before them (RFC 9651)
//
// An instant in the past is no wait, a negative number none at all, and a number that is too large [MaxSeconds].
func ParseWait(header http.Header, now time.Time, field, text string) (time.Duration, bool) {
	text = strings.TrimSpace(strings.Trim(strings.TrimSpace(text), `"'`))
	if decimal.MatchString(text) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil && !IsDigits(text) { // an exponent that is out of range is nobody's wait
			return 0, false
		}
		return waitOfNumber(header, now, n, inMillis.MatchString(field)), true
	}
	if d, ok := parseDuration(text); ok {
		return d, true
	}
	if t, ok := parseInstant(text); ok {
		return max(Left(header, now, t), 0), true
	}
	return 0, false
}

func waitOfNumber(header http.Header, now time.Time, n float64, millis bool) time.Duration {
	switch {
	case n > MaxSeconds*1e3:
		return MaxSeconds * time.Second
	case n >= 1e11:
		return max(Left(header, now, time.UnixMilli(int64(n))), 0)
	case millis:
		return time.Duration(math.Round(n * float64(time.Millisecond)))
	case n >= 1e9:
		return max(Left(header, now, time.Unix(int64(n), 0)), 0)
	}
	return time.Duration(math.Round(n * float64(time.Second)))
}

// parseDuration reads a duration of one or more parts.
func parseDuration(text string) (time.Duration, bool) {
	sum, rest := 0.0, strings.ToLower(text)
	for rest != "" {
		part := oneDuration.FindStringSubmatch(rest)
		if part == nil || units[part[2]] == 0 {
			return 0, false
		}
		n, _ := strconv.ParseFloat(part[1], 64)
		sum += n * float64(units[part[2]])
		rest = rest[len(part[0]):]
	}
	return time.Duration(math.Round(min(sum, float64(MaxSeconds*time.Second)))), text != ""
}

// The layouts of instants, behind the three of HTTP.
var layouts = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 -0700", "2 Jan 2006 15:04:05 GMT", "2 Jan 2006 15:04:05 -0700",
	time.RFC3339, "2006-01-02T15:04:05-0700", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 GMT", "2006-01-02 15:04:05",
}

func parseInstant(text string) (time.Time, bool) {
	if seconds, ok := strings.CutPrefix(text, "@"); ok && IsDigits(seconds) {
		n, err := strconv.ParseInt(seconds, 10, 64)
		return time.Unix(min(n, MaxSeconds), 0), err == nil
	}
	for _, utc := range []string{" UTC", " UT", " Z", " utc", " gmt"} {
		if date, ok := strings.CutSuffix(text, utc); ok {
			text = date + " GMT"
		}
	}
	if t, err := http.ParseTime(text); err == nil {
		return t, true
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
