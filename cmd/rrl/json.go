// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
)

// A jsonView writes one JSON object a line, each with the name of an event and its time in ms since the
// start. The last one is the summary, whose text is the last line of the other views.
type jsonView struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

type jsonEvent struct {
	Event string `json:"event"` // begin, asked, answered, summary
	AtMS  int64  `json:"at_ms"`
}

type jsonBegin struct {
	jsonEvent
	Redis      string `json:"redis"`
	Limiter    string `json:"limiter"`
	URL        string `json:"url"`
	Type       string `json:"type"`
	Permits    int64  `json:"permits"`
	IntervalMS int64  `json:"interval_ms"`
	TimeoutMS  int64  `json:"timeout_ms"`
}

type jsonExchange struct {
	jsonEvent
	Client    string  `json:"client"`
	Num       string  `json:"num"`
	TimeoutMS int64   `json:"timeout_ms,omitempty"`
	Status    int     `json:"status,omitempty"`
	TookMS    *int64  `json:"took_ms,omitempty"` // as the client saw it
	Answer    *answer `json:"answer,omitempty"`
	Error     string  `json:"error,omitempty"` // why there is no response
}

type jsonSummary struct {
	jsonEvent
	Most     int64       `json:"most"`
	Limit    int64       `json:"limit"`
	WindowMS int64       `json:"window_ms"`
	Granted  int64       `json:"granted_permits"`
	Statuses map[int]int `json:"statuses"`
	OK       bool        `json:"ok"`
	Error    string      `json:"error,omitempty"`
	Text     string      `json:"text"`
}

func (v *jsonView) write(o any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = term.EncodeJSON(v.out, o) // fails only if the reader has gone
}

func (v *jsonView) begin(i intro) {
	v.start = time.Now()
	v.write(jsonBegin{jsonEvent{"begin", 0}, i.Where, i.Limiter, i.URL, i.Rate.Type.String(), i.Rate.Permits,
		i.Rate.Interval.Milliseconds(), i.Timeout.Milliseconds()})
}

func (v *jsonView) asked(e exchange) {
	v.write(jsonExchange{jsonEvent: jsonEvent{"asked", e.Asked.Milliseconds()}, Client: e.Client, Num: e.Num,
		TimeoutMS: e.Timeout.Milliseconds()})
}

func (v *jsonView) answered(e exchange) {
	took := e.waited().Milliseconds()
	o := jsonExchange{jsonEvent: jsonEvent{"answered", e.Done.Milliseconds()}, Client: e.Client, Num: e.Num,
		TimeoutMS: e.Timeout.Milliseconds(), Status: e.Status, TookMS: &took}
	if e.Status != 0 {
		o.Answer = &e.Answer
	} else if e.Err != nil {
		o.Error = oneLine(e.Err)
	}
	v.write(o)
}

func (v *jsonView) end(s summary) {
	o := jsonSummary{jsonEvent{"summary", time.Since(v.start).Milliseconds()}, s.Most, s.Limit,
		s.Window.Milliseconds(), s.Granted, s.Statuses, s.Err == nil, "", s.String()}
	if s.Err != nil {
		o.Error = oneLine(s.Err)
	}
	v.write(o)
}

func (v *jsonView) close() {}
