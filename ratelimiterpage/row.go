// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"strings"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
)

// usualOrder is the order of a list whose address does not say another.
const usualOrder = "harm"

// A rowView is a row of the list.
type rowView struct {
	view.Cells
	Link            string
	Share           int // of the rate that is used, in percent
	Known           bool
	Broken, Limited bool
	Gone            bool
	Sick            string // checks of the doctor that have found something
}

// nameShown is how many bytes of a name are shown at most beside others. The page of the limiter has the whole name.
const nameShown = 120

// shortName returns a name as it is shown beside others: of a long one the beginning and the end, by which those of one program
// differ.
func shortName(name string) string {
	if len(name) > 2*nameShown {
		name = name[:nameShown] + name[len(name)-nameShown:] // more than is shown, as no character is shown by fewer bytes
	}
	visible := survey.VisibleName(name)
	if len(visible) <= nameShown {
		return visible
	}
	const tail = nameShown / 3
	return strings.ToValidUTF8(visible[:nameShown-tail], "") + "…" + strings.ToValidUTF8(visible[len(visible)-tail:], "")
}

// style is how the tables of the page write.
func (v *pageView) style() view.Style { return view.Style{None: "–", Number: v.number, Word: v.t} }

func (v *pageView) row(r *view.Row, sick []string) rowView {
	o := rowView{Cells: r.Cells(v.style()), Sick: v.checks(sick), Link: v.limiterLink(r.Name, ""), Share: int(100*r.Share() + 0.5), Known: r.Used != survey.Unknown,
		Broken: r.Is(view.Stuck | view.Malformed), Limited: r.Is(view.Limited | view.Queue), Gone: r.Is(view.Gone)}
	o.Name = shortName(r.Name)
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
