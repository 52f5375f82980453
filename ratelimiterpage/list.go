// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/goredisson/ratelimiter/internal/ops/view"
)

// rowsShown is how many limiters a page of the list has.
const rowsShown = 50

// A listQuery is what the address of a list says.
type listQuery struct {
	filter string // of names
	only   string // a tab
	sort   string
	up     bool // the other way round
	page   int  // from 1
}

// A tab is something that the list can be narrowed down to. Its flags are 0 for all limiters.
type tab struct {
	id, title string
	is        view.Flags
}

// tabs are in the order in which the page shows them.
var tabs = []tab{
	{"", "All", 0},
	{"limited", "Limited now", view.Limited | view.Queue},
	{"waiting", "Callers wait", view.Queue},
	{"broken", "Broken", view.Stuck | view.Malformed},
	{"stuck", "Stuck", view.Stuck},
	{"quotas", "Quotas", view.Quota},
	{"cooling", "Cool-down", view.Cooling},
	{"clients", "Per client", view.PerClient},
	{"malformed", "Malformed", view.Malformed},
}

func parseListQuery(q url.Values) listQuery {
	printable := func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return -1
	}
	l := listQuery{filter: strings.TrimSpace(strings.Map(printable, q.Get("q"))), only: q.Get("only"), sort: q.Get("sort"), up: q.Get("up") == "1"}
	if _, ok := view.Orders[l.sort]; !ok {
		l.sort = usualOrder
	}
	if !slices.ContainsFunc(tabs, func(t tab) bool { return t.id == l.only }) {
		l.only = ""
	}
	l.page, _ = strconv.Atoi(q.Get("page"))
	l.page = max(1, l.page)
	return l
}

// link returns the address of the list of another query.
func (l listQuery) link(v *pageView) string {
	q := v.query()
	set := func(key, value, none string) {
		if value != none {
			q.Set(key, value)
		}
	}
	set("q", l.filter, "")
	set("only", l.only, "")
	set("sort", l.sort, usualOrder)
	if l.up {
		q.Set("up", "1")
	}
	set("page", strconv.Itoa(l.page), "1")
	return "./" + withQuery(q)
}

// A listView is what the template of the list shows.
type listView struct {
	*pageView
	Filter, Only, Sort string
	Up                 bool
	Tabs               []tabView
	Columns            []columnView
	Rows               []rowView
	From, To, Of, All  int
	Page, Pages        int
	Prev, Next         string
	Looking            bool
	Looked             string
	At                 string
	Missing            []string
	More               bool
	Most               int
	Nodes              bool // there are several
}

type tabView struct {
	Title, Link string
	Count       int
	On          bool
}

type columnView struct {
	Title, Link, Class string
	Sorted             string // ascending, descending, or empty
}

func (h *Handler) serveList(w http.ResponseWriter, r *http.Request) {
	v := h.view(r)
	q := parseListQuery(r.URL.Query())
	s := h.limiters(r.Context(), r.URL.Query().Get("again") == "1")
	lv := &listView{pageView: v, Filter: q.filter, Only: q.only, Sort: q.sort, Up: q.up, Looking: s.looking, Missing: s.missing, More: s.more,
		Most: mostLimiters, All: len(s.rows)}
	v.Title, v.Here = v.t("Rate limiters"), "list"
	v.State = "state" + withQuery(v.query())
	v.Refresh = s.looking
	if s.looking {
		lv.Looked = v.number(s.looked)
	} else if !s.at.IsZero() {
		lv.At = v.clock(s.at)
	}
	h.beginRound(false)
	_, sick := h.rounds.summary()
	rows := lv.choose(s, q, sick)
	lv.Of = len(rows)
	lv.Pages = max(1, (lv.Of+rowsShown-1)/rowsShown)
	lv.Page = min(q.page, lv.Pages)
	rows = rows[(lv.Page-1)*rowsShown : min(lv.Of, lv.Page*rowsShown)]
	lv.From, lv.To = (lv.Page-1)*rowsShown+1, (lv.Page-1)*rowsShown+len(rows)
	if len(rows) == 0 {
		lv.From = 0
	}
	other := q
	if other.page = lv.Page - 1; lv.Page > 1 {
		lv.Prev = other.link(v)
	}
	if other.page = lv.Page + 1; lv.Page < lv.Pages {
		lv.Next = other.link(v)
	}
	nodes := map[string]bool{}
	for _, x := range s.rows {
		if nodes[x.Node] = true; len(nodes) > 1 {
			lv.Nodes = true
			break
		}
	}
	shown := make([]view.Row, len(rows))
	for i, x := range rows {
		shown[i] = *x
	}
	for _, x := range h.fresh(r.Context(), shown) {
		lv.Rows = append(lv.Rows, v.row(&x, sick[x.Name]))
	}
	lv.columns(q)
	v.noteHealth(h)
	h.render(w, http.StatusOK, "list", v, lv)
}

// choose returns the rows that the query is about, in its order, and fills in the tabs. sick is what the doctor has found.
func (lv *listView) choose(s snapshot, q listQuery, sick map[string][]string) []*view.Row {
	filter := strings.ToLower(q.filter)
	counts := make([]int, len(tabs))
	var rows []*view.Row
	for i := range s.rows {
		x := &s.rows[i]
		if !matches(x.Name, filter) {
			continue
		}
		shown := false
		for i, t := range tabs {
			if t.is == 0 || x.Is(t.is) || t.id == "broken" && len(sick[x.Name]) > 0 { // the doctor has found something else
				counts[i]++
				shown = shown || t.id == q.only
			}
		}
		if shown {
			rows = append(rows, x)
		}
	}
	for i, t := range tabs {
		if counts[i] == 0 && t.id != "" && t.id != "limited" && t.id != q.only {
			continue
		}
		to := q
		to.only, to.page = t.id, 1
		lv.Tabs = append(lv.Tabs, tabView{lv.t(t.title), to.link(lv.pageView), counts[i], t.id == q.only})
	}
	if q.sort != usualOrder || q.up || !s.sorted {
		by := view.Orders[q.sort]
		slices.SortFunc(rows, func(a, b *view.Row) int {
			if q.up {
				a, b = b, a
			}
			return by(a, b)
		})
	}
	return rows
}

// columns are those of the table; those that a list can be sorted by have the id of their order.
var columns = []struct{ id, title, class string }{
	{"name", "Name", "name"}, {"", "Type", "type"}, {"rate", "Rate", "num rate"}, {"granted", "Granted/s", "num granted"}, {"used", "Used", "used"},
	{"harm", "Waiting", "num waiting"}, {"wait", "Wait", "num wait"}, {"", "Cool-down", "num cooldown"}, {"ttl", "Expires in", "num ttl"},
	{"members", "Members", "num members"}, {"", "Written by", "by"}, {"node", "Node", "node"},
}

// columns fills in the heads of the table.
func (lv *listView) columns(q listQuery) {
	for _, c := range columns {
		if c.id == "node" && !lv.Nodes {
			continue
		}
		col := columnView{Title: lv.t(c.title), Class: c.class}
		if _, ok := view.Orders[c.id]; ok {
			to := q
			to.sort, to.page, to.up = c.id, 1, c.id == q.sort && !q.up
			col.Link = to.link(lv.pageView)
			if c.id == q.sort {
				col.Sorted = "descending"
				if (c.id == "name") != q.up {
					col.Sorted = "ascending"
				}
			}
		}
		lv.Columns = append(lv.Columns, col)
	}
}

// number returns a number with its digits in groups of three.
func (v *pageView) number(n int64) string {
	s := fmt.Sprint(n)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return s[:len(s)-len(strings.TrimPrefix(s, "-"))] + digits
}
