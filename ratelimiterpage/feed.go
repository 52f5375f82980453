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

// feedAge is for how long what was read is shown to others who look at the same. A page asks once a second.
const feedAge = time.Second

// A feedKey says what a feed reads: the keys of a limiter, or, if name is empty, only whether Redis replies.
type feedKey struct{ name, client string }

// feeds are what pages ask for again and again. However many look at the same, it is read once a second.
type feeds struct {
	mu sync.Mutex
	of map[feedKey]*feed
}

// A feed is what was read of a key last.
type feed struct {
	turn  chan struct{} // holds one token while somebody reads
	users int           // that read, or wait for their turn; guarded by feeds.mu
	at    time.Time     // of the event; guarded by feeds.mu
	event *event        // guarded by turn
}

// An event is one reading of a feed.
type event struct {
	state *survey.State // nil if there is nothing to show, or it could not be read
	since time.Time     // since when Redis cannot be read; the zero time if it can
	why   string

	mu   sync.Mutex
	text map[string][]byte // what is sent, by language
}

// enter returns the feed of a key for somebody who reads it. Those that nobody has read for a while are forgotten.
func (s *feeds) enter(key feedKey) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, f := range s.of {
		if f.users == 0 && time.Since(f.at) >= feedAge {
			delete(s.of, k)
		}
	}
	f := s.of[key]
	if f == nil {
		f = &feed{turn: make(chan struct{}, 1)}
		s.of[key] = f
	}
	f.users++
	return f
}

// leave ends a use of a feed.
func (s *feeds) leave(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.users--
}

// newest returns how a key stands, which was read within feedAge, or nil if ctx is done before.
func (h *Handler) newest(ctx context.Context, key feedKey) *event {
	s := &h.feeds
	f := s.enter(key)
	defer s.leave(f)
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil
	}
	if f.event != nil && time.Since(f.at) < feedAge { // only who has the turn writes at
		return f.event
	}
	ev := &event{text: map[string][]byte{}}
	var err error
	if ev.state, err = h.look(ctx, key); ctx.Err() != nil {
		return nil
	}
	if err != nil {
		ev.since, ev.why, _ = h.health.down()
	}
	f.event = ev
	s.mu.Lock()
	f.at = time.Now()
	s.mu.Unlock()
	return ev
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

// serveState serves how what ?name= and ?client= say stands. Each page asks for it once a second while somebody looks at it, and keeps
// no connection meanwhile: a browser has six for all its tabs.
func (h *Handler) serveState(w http.ResponseWriter, r *http.Request) {
	v := h.view(r)
	q := r.URL.Query()
	ev := h.newest(r.Context(), feedKey{q.Get("name"), q.Get("client")})
	if ev == nil {
		return // whoever asked has left
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(h.eventText(ev, v))
}

// eventText returns an event as it is sent, which is the same for all who look in a language.
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
	ev.text[v.Lang] = text
	return text
}
