// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/goredisson/ratelimiter/internal/view"
)

// usualOrder is the order of a list whose address does not say another.
const usualOrder = "harm"

// A rowView is a row of the list.
type rowView struct {
	Name, Link        string
	Type, Rate        string
	Granted           string
	Used, Wait        string
	Waiting           string
	Share             int // of the rate that is used, in percent
	Known             bool
	Stuck, Limited    bool
	Gone, Malformed   bool
	Sick              string // checks of the doctor that have found something
	Cool, TTL         string
	Members, By, Node string
}

// nameShown is how many bytes of a name a list shows at most.
const nameShown = 300

// shortName returns a name as a list shows it.
func shortName(name string) string {
	if len(name) <= nameShown {
		return survey.VisibleName(name)
	}
	return survey.VisibleName(strings.ToValidUTF8(name[:nameShown], "")) + "…"
}

func (v *pageView) row(r *view.Row, sick []string) rowView {
	o := rowView{Name: shortName(r.Name), Sick: v.checks(sick), Link: v.limiterLink(r.Name, ""), Node: survey.Visible(r.Node), TTL: "–", Members: v.number(r.Members),
		Stuck: r.Is(view.Stuck), Limited: r.Is(view.Limited | view.Queue), Gone: r.Is(view.Gone), Malformed: r.Is(view.Malformed), Wait: "–", Used: "–", Granted: "–", Waiting: "–",
		By: r.By.String()}
	switch {
	case r.Kind == survey.Hidden:
		o.Type, o.Rate, o.Members = v.t("hidden"), "–", "–"
	case o.Malformed:
		o.Type, o.Rate = v.t("malformed"), "–"
	default:
		o.Type, o.Rate = r.Rate.Type.String(), survey.RateText(r.Rate)
	}
	if r.Used != survey.Unknown {
		o.Used, o.Known, o.Granted = v.number(r.Used), true, v.perSecond(r.Granted())
		o.Share = int(100*r.Share() + 0.5)
	}
	if r.Queued != survey.Unknown {
		o.Wait = survey.Brief(r.Queued)
	}
	if r.Waiting > 0 {
		o.Waiting = v.number(r.Waiting)
	}
	if o.Stuck {
		o.Wait = v.t("stuck")
	}
	if r.Is(view.PerClient) {
		o.Members = "–"
	}
	if r.CoolDown > 0 {
		o.Cool = survey.Brief(time.Duration(r.CoolDown-r.At) * time.Millisecond)
	}
	if r.TTL >= 0 {
		o.TTL = survey.Brief(r.TTL)
	}
	return o
}

// matches reports whether name contains filter, in which * stands for any text. Upper and lower case are equal; filter is
// in lower case.
func matches(name, filter string) bool {
	if filter == "" {
		return true
	}
	name = strings.ToLower(name)
	for part := range strings.SplitSeq(filter, "*") {
		_, rest, ok := strings.Cut(name, part)
		if !ok {
			return false
		}
		name = rest
	}
	return true
}
