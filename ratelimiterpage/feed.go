// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
)

const (
	// feedEvery is the pause between two readings of what somebody looks at.
	feedEvery = time.Second
	// streamLimit is how long a stream lasts. The browser that is still there begins another at once; the place of one that
	// has gone without a word, which nobody else notices, is free.
	streamLimit = 30 * time.Second
	// writeLimit is how long a viewer may take to accept an event.
	writeLimit = 10 * time.Second
)

// A feedKey says what a feed reads: the keys of a limiter, or, if name is empty, only whether Redis replies.
type feedKey struct{ name, client string }

// feeds are what is read again and again, each by one goroutine however many look, and only while somebody does.
type feeds struct {
	mu      sync.Mutex
	of      map[feedKey]*feed
	streams int // of all feeds
}

// A feed is read once a second.
type feed struct {
	key     feedKey
	viewers map[chan struct{}]bool // each is told of a new event; guarded by feeds.mu
	event   *event                 // the newest, or nil; guarded by feeds.mu
	stop    context.CancelFunc
}

// An event is one reading of a feed.
type event struct {
	state *survey.State // nil if there is nothing to show, or it could not be read
	since time.Time     // since when Redis cannot be read; the zero time if it can
	why   string

	mu   sync.Mutex
	text map[string][]byte // what is sent, by language
}

// join makes a viewer of a feed, which it begins if there is none. It reports false if there are too many viewers.
func (h *Handler) join(key feedKey) (f *feed, news chan struct{}, ok bool) {
	s := &h.feeds
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= h.streams {
		return nil, nil, false
	}
	f = s.of[key]
	if f == nil {
		ctx, stop := context.WithCancel(h.ctx)
		f = &feed{key: key, viewers: map[chan struct{}]bool{}, stop: stop}
		if !h.start(func() { h.feed(ctx, f) }) {
			stop()
			return nil, nil, false
		}
		s.of[key] = f
	}
	s.streams++
	news = make(chan struct{}, 1)
	f.viewers[news] = true
	if f.event != nil {
		news <- struct{}{}
	}
	return f, news, true
}

// leave takes a viewer from a feed, which the last one ends.
func (h *Handler) leave(f *feed, news chan struct{}) {
	s := &h.feeds
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	delete(f.viewers, news)
	if len(f.viewers) == 0 {
		f.stop()
		delete(s.of, f.key)
	}
}

// newest returns the newest event of a feed.
func (s *feeds) newest(f *feed) *event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.event
}

// feed reads what the feed is of until ctx is done, and tells the viewers.
func (h *Handler) feed(ctx context.Context, f *feed) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		ev := &event{text: map[string][]byte{}}
		var err error
		ev.state, err = h.look(ctx, f.key)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			ev.since, ev.why, _ = h.health.down()
		}
		h.feeds.mu.Lock()
		f.event = ev
		for news := range f.viewers {
			select {
			case news <- struct{}{}:
			default: // the viewer has not seen the one before, and will see this one in its place
			}
		}
		h.feeds.mu.Unlock()
		timer.Reset(feedEvery)
	}
}

// look reads what a key says.
func (h *Handler) look(ctx context.Context, key feedKey) (st *survey.State, err error) {
	reading, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	if key.name == "" {
		err = h.survey.Ping(reading)
	} else {
		if st, err = h.survey.Read(reading, key.name, key.client); err != nil {
			st = nil // what was read up to there is no state
		} else if st.Problem == nil {
			h.survey.Locate(reading, st)
			r := view.RowOf(st.Limiter())
			h.history.add(&r)
		}
	}
	if ctx.Err() == nil {
		h.health.note(err)
	}
	return st, err
}

// serveEvents sends an event of what ?name= and ?client= say once a second, until the viewer leaves.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	v := h.view(r)
	q := r.URL.Query()
	f, news, ok := h.join(feedKey{q.Get("name"), q.Get("client")})
	if !ok {
		w.Header().Set("Retry-After", "30")
		http.Error(w, v.t("Too many live views are open. This page does not move."), http.StatusServiceUnavailable)
		return
	}
	defer h.leave(f, news)
	header := w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("X-Accel-Buffering", "no") // a proxy passes each event on at once
	out := http.NewResponseController(w)
	send := func(text []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeLimit)) // in place of the server's WriteTimeout
		if _, err := w.Write(text); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	if !send([]byte("retry: 2000\n\n")) {
		return
	}
	end := time.NewTimer(streamLimit)
	defer end.Stop()
	for {
		select {
		case <-end.C:
			send([]byte("retry: 50\nevent: again\ndata: {}\n\n"))
			return
		case <-news:
			if !send(h.eventText(h.feeds.newest(f), v)) {
				return
			}
		case <-r.Context().Done():
			return
		case <-h.ctx.Done():
			return
		}
	}
}

// eventText returns an event as it is sent, which is the same for all viewers of a language.
func (h *Handler) eventText(ev *event, v *pageView) []byte {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if text, ok := ev.text[v.Lang]; ok {
		return text
	}
	var o struct {
		Down  string `json:"down,omitempty"` // what the page says about Redis; empty if it is there
		Live  string `json:"live,omitempty"` // the part of the page that moves
		Found int    `json:"found"`          // findings of the doctor that are at least a warning
	}
	o.Found, _ = h.rounds.summary()
	if !ev.since.IsZero() {
		o.Down = v.downText(ev.since, ev.why)
	}
	if ev.state != nil {
		var b bytes.Buffer
		if err := pages[v.Lang].ExecuteTemplate(&b, "live", h.liveOf(v, ev.state)); err != nil {
			o.Down = survey.OneLine(err)
		}
		o.Live = b.String()
	}
	text, err := json.Marshal(o)
	if err != nil {
		text = []byte("{}")
	}
	text = append(append([]byte("data: "), text...), '\n', '\n')
	ev.text[v.Lang] = text
	return text
}
