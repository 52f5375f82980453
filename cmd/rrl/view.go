// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A view shows the progress of a demo. Its methods are safe for concurrent use.
type view interface {
	begin(intro)
	asked(exchange)
	answered(exchange)
	end(summary)
	// close restores the terminal. The view shows nothing after it.
	close()
}

// A liveView also shows the keys between responses.
type liveView interface {
	view
	keys(now time.Duration, k *redisKeys)
}

// An intro describes a demo that begins.
type intro struct {
	Where   string // which Redis
	Limiter string
	URL     string // of the endpoint
	Rate    ratelimiter.Rate
	Timeout time.Duration // how long the endpoint waits for permits
	Serve   bool
}

func (i intro) lines() []string {
	lines := []string{
		fmt.Sprintf("A limiter of %d permits in any %v, type %s, named %s, in %s.", i.Rate.Permits, i.Rate.Interval, i.Rate.Type, visible(i.Limiter), visible(i.Where)),
		fmt.Sprintf("GET %s/require?num=N waits up to %v for N permits: 200, 429, 400 or 503.", i.URL, i.Timeout),
		fmt.Sprintf("In the permits key 2@0.40s is a grant of 2 permits 0.40s after the start; they are back %v later.", i.Rate.Interval),
	}
	if i.Serve {
		lines = append(lines,
			fmt.Sprintf("Try: curl -i '%s/require?num=2'   curl '%s/state'   Ctrl-C ends it.", i.URL, i.URL))
	}
	return lines
}

// A plainView writes plain lines, for a file or a pipe, with the keys after each response.
type plainView struct {
	mu  sync.Mutex
	out io.Writer
	clock
}

func (v *plainView) begin(i intro) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, line := range i.lines() {
		fmt.Fprintln(v.out, line)
	}
	fmt.Fprintln(v.out)
}

func (v *plainView) asked(e exchange) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(v.out, askLine(e))
}

func (v *plainView) answered(e exchange) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(v.out, answerLine(e))
	for _, line := range v.keyLines(e.Done, e.Answer.Redis) {
		fmt.Fprintln(v.out, "        "+line)
	}
}

func (v *plainView) end(s summary) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.out, "\n%s\n%s\n", s.counts(), s)
}

func (v *plainView) close() {}

// askLine returns the line for a request that was sent. In the play it has at most 79 columns, as that
// of answerLine.
func askLine(e exchange) string {
	line := head(e.Asked, e) + "  asks"
	if e.Timeout > 0 {
		line += fmt.Sprintf(", will wait %v", e.Timeout)
	}
	return line
}

// answerLine returns the line for a request that has ended.
func answerLine(e exchange) string {
	line := head(e.Done, e) + "  "
	what := func(outcome string) {
		line += fmt.Sprintf("%d %-8s waited %5.2fs", e.Status, outcome, e.waited().Seconds())
		if e.Answer.Available != nil {
			line += fmt.Sprintf("  %d left", *e.Answer.Available)
		}
		if e.Answer.RetryAfterS > 0 {
			line += fmt.Sprintf("  Retry-After: %d", e.Answer.RetryAfterS)
		}
	}
	switch e.Status {
	case http.StatusOK:
		what("granted")
	case http.StatusTooManyRequests:
		what("rejected")
	case 0:
		line += "no answer"
		if e.Err != nil {
			line += ": " + oneLine(e.Err)
		}
	default:
		line += fmt.Sprintf("%d %s", e.Status, visible(e.Answer.Error))
	}
	return line
}

// head returns the beginning of a line about e.
func head(at time.Duration, e exchange) string {
	return fmt.Sprintf("%6.2fs  %-4s num=%-4s", at.Seconds(), visible(e.Client), visible(e.Num))
}

// A clock translates the limiter's time to time since the start of the demo. The limiter's clock is that
// of Redis, which may differ from ours by minutes, so the first keys that are read set the epoch.
type clock struct {
	epoch time.Time
}

// keyLines returns a line for each of the three keys, without a newline.
func (c *clock) keyLines(now time.Duration, k *redisKeys) []string {
	if k == nil {
		return nil
	}
	if c.epoch.IsZero() {
		c.epoch = time.UnixMilli(k.TimeMS).Add(-now)
	}
	value := "(no such key)"
	if k.Value.Value != nil {
		value = visible(*k.Value.Value)
	}
	hash, left, permits := visible(k.Hash.Key), visible(k.Value.Key), visible(k.Permits.Key)
	width := max(len(hash), len(left), len(permits))
	return []string{
		fmt.Sprintf("hash    %-*s  %s", width, hash, fieldText(k.Hash.Fields)),
		fmt.Sprintf("value   %-*s  %s", width, left, value),
		fmt.Sprintf("permits %-*s  %s", width, permits, c.memberText(k.Permits)),
	}
}

// fieldText returns the fields of the hash, those of Redisson first and in its order.
func fieldText(fields map[string]string) string {
	order := []string{"rate", "interval", "type", "keepAliveTime"}
	rank := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	names := slices.SortedFunc(maps.Keys(fields), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = visible(name + "=" + fields[name])
	}
	return strings.Join(names, " ")
}

// memberText returns the grants in the permits set, oldest first. If they are too many for a line, it
// returns the newest ones and the number of the others.
func (c *clock) memberText(p permitsKey) string {
	const most = 8
	var parts []string
	formats := map[string]bool{}
	shown := p.Members[:min(len(p.Members), most)]
	if more := p.Count - int64(len(shown)); more > 0 {
		parts = append(parts, fmt.Sprintf("(%d older)", more))
	}
	for _, m := range slices.Backward(shown) {
		part := fmt.Sprintf("%d@%.2fs", m.Permits, max(0, m.granted().Sub(c.epoch).Seconds()))
		switch {
		case m.GrantedMS == 0: // no grant, but a mark by which waiters learn that a caller of Redisson has asked
			part = "tripwire"
		case m.Expired:
			part += "(expired)"
		}
		parts = append(parts, part)
		formats[m.Format] = true
	}
	if len(parts) == 0 {
		return "(no members)"
	}
	return strings.Join(parts, " ") + "  as " + visible(strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
}

// counts returns the line before the last.
func (s summary) counts() string {
	n := func(status int) int { return s.Statuses[status] }
	line := fmt.Sprintf("%d granted (%d permits), %d rejected, %d bad", n(http.StatusOK), s.Granted,
		n(http.StatusTooManyRequests), n(http.StatusBadRequest))
	if failed := n(http.StatusServiceUnavailable) + n(0); failed > 0 {
		line += fmt.Sprintf(", %d without Redis or an answer", failed)
	}
	return line
}
