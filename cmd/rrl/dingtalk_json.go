// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/goredisson/ratelimiter/internal/dinggate"
)

// A dingJSON writes one JSON object a line, as a jsonView does.
type dingJSON struct{ jsonView }

type (
	dingJSONBegin struct {
		jsonEvent
		Redis     string   `json:"redis"`
		Gateway   string   `json:"gateway"`
		Services  []string `json:"services"`
		APIs      []string `json:"apis"`
		Limit     int      `json:"limit_per_s"` // of an API
		BanMS     int64    `json:"ban_ms"`      // in the demo
		RealBanMS int64    `json:"real_ban_ms"`
	}
	dingJSONText struct {
		jsonEvent
		Act  string `json:"act,omitempty"`
		Text string `json:"text"`
	}
	dingJSONSecond struct {
		jsonEvent
		Sent       map[string]int64 `json:"sent"` // by service, since the beginning
		Waiting    int64            `json:"waiting"`
		Free       *int64           `json:"address_permits,omitempty"`
		CoolDownMS int64            `json:"cool_down_ms"`
		Calls      int64            `json:"calls"` // of this second
		Admitted   int64            `json:"admitted"`
		Rejected   int64            `json:"rejected"`
		Most       int              `json:"most"` // in any second so far, of one API
		Penalties  int64            `json:"penalties"`
		BannedMS   int64            `json:"banned_ms"`
	}
	dingJSONPart struct {
		LengthMS int64 `json:"length_ms"`
		dinggate.Counts
	}
	dingJSONSummary struct {
		jsonEvent
		Without   dingJSONPart `json:"without"`
		With      dingJSONPart `json:"with"`
		After     int64        `json:"admitted_after_ban"`
		Penalties int64        `json:"penalties"` // with the limiter
		Most      int          `json:"most"`
		Limit     int          `json:"limit"`
		KnownMS   int64        `json:"ban_known_after_ms"` // -1 if no service learned of it
		InBan     int64        `json:"calls_during_ban"`   // with those under way when it began
		LastMS    int64        `json:"last_after_ms"`      // the last of them, after the ban began
		Late      int          `json:"sent_during_known_ban"`
		Share     int          `json:"percent_of_allowed"`
		OK        bool         `json:"ok"`
		Error     string       `json:"error,omitempty"`
		Text      string       `json:"text"`
	}
)

func (v *dingJSON) begin(i dingIntro) {
	v.write(dingJSONBegin{jsonEvent{"begin", 0}, i.Where, i.URL, dingServices, dingAPIs, dingLimit,
		i.Ban.Milliseconds(), dinggate.Standard().IP.Penalty.Milliseconds()})
}

func (v *dingJSON) act(e dingEvent) {
	v.write(dingJSONText{jsonEvent{"act", e.At.Milliseconds()}, e.Kind, e.Text})
}

func (v *dingJSON) tell(e dingEvent) {
	v.write(dingJSONText{jsonEvent{e.Kind, e.At.Milliseconds()}, "", e.Text})
}

func (v *dingJSON) second(r dingRow) {
	o := dingJSONSecond{jsonEvent{"second", r.At.Milliseconds()}, map[string]int64{}, r.Waiting, nil, r.CoolDown.Milliseconds(),
		r.Calls, r.Admitted, r.Rejected, r.Most, r.Penalties, r.Banned.Milliseconds()}
	for i, name := range dingServices {
		o.Sent[name] = r.Sent[i]
	}
	if r.Free >= 0 {
		o.Free = &r.Free
	}
	v.write(o)
}

func (v *dingJSON) end(s dingSummary) {
	o := dingJSONSummary{
		jsonEvent: jsonEvent{"summary", s.At.Milliseconds()},
		Without:   dingJSONPart{s.Parts.Without.Milliseconds(), s.Without.Total},
		With:      dingJSONPart{s.Parts.With.Milliseconds(), s.With.Total},
		After:     s.after(), Penalties: dingPenalties(s.End), Most: dingMost(s.End), Limit: dingLimit, KnownMS: -1,
		InBan: s.outside().Calls, LastMS: s.outside().Last.Milliseconds(), Late: s.Ban.Late, Share: s.share(), OK: s.Err == nil, Text: s.String(),
	}
	if !s.Ban.Known.IsZero() {
		o.KnownMS = s.Ban.Known.Sub(s.Ban.Start).Milliseconds()
	}
	if s.Err != nil {
		o.Error = oneLine(s.Err)
	}
	v.write(o)
}

func (v *dingJSON) close() {}
