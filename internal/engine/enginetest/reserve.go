package enginetest

import (
	"bytes"
	"slices"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// reserve holds permits for v from now on, as many as possible.
func (g *slidingLog) reserve(v permit.Reservation, now, cool int64, tag int) (a permit.Reserved) {
	e, held := g.find(v.ID), int64(0)
	if e != nil && e.left != v.Held && v.Held == 0 && !v.Unsure {
		e = nil
	}
	if e != nil {
		held = e.left
	}
	may := v.Want > 0 && cool <= now && g.pause(now, e) <= 0
	if v.Ahead {
		a.Place, a.Since = g.queue(v, now, may && g.rate.MinGap == 0)
	}
	first := a.Place == 1 && !v.Stand
	n := int64(0)
	if may {
		g.wires = nil
		for i := 0; i < len(g.entries) && g.entries[i].at <= now-g.interval(); {
			switch {
			case v.Ahead && (!first || g.value()+held >= v.Want): // the rest is for acquire, which leaves some of it to others
				i = len(g.entries)
			case g.entries[i] == e:
				i++
			default:
				g.entries = slices.Delete(g.entries, i, i+1)
			}
		}
		free := g.value() + held
		n = max(0, min(v.Want, free))
		switch {
		case first:
			n, a.Lacking = v.Want, max(0, v.Want-free)
			if v.Whole && a.Lacking > 0 {
				n = min(held, v.Want)
				a.Lacking = v.Want - n
			}
		case v.Ahead:
			n = 0
			if a.Place > 0 {
				a.Lacking = v.Want
			}
		case g.value() < 0 && len(g.ahead) > 0:
			n = min(held, v.Want)
		case n < v.Want && (g.rate.MinGap > 0 || v.Whole):
			n = min(held, n)
		}
	}
	a.Held = n
	if e != nil {
		g.remove(e)
	} else if n > 0 {
		e = &entry{id: v.ID, by: tag}
		g.ever = append(g.ever, e)
	}
	if e != nil {
		e.left, e.granted, e.at = n, n, now
		if a.Lacking > 0 {
			e.granted = 0
		}
	}
	if n > 0 {
		g.insert(e)
	}
	switch {
	case first && v.Whole && n > 0 && a.Lacking == 0:
		g.ahead = g.ahead[1:]
	case first && n > 0 && a.Lacking == 0:
		pause := min(g.interval(), (4*g.interval()*v.Want+g.rate.Permits-1)/g.rate.Permits)
		if 4*v.Want > 3*g.rate.Permits {
			pause = g.interval() + min(25, (g.interval()+9)/10)
		}
		g.ahead[0] = turn{till: now + max(1, pause)}
	case a.Lacking > 0:
		if a.Place != 1 || !v.Stand && !v.Whole {
			a.Wait = ms(g.lacks(e, now))
		} else if short := v.Want - g.value(); short > 0 {
			wait, _ := g.wait(now, short, 0, 0)
			a.Wait = ms(wait)
		}
	}
	return a
}

// A turn is that of a caller to hold permits that lack, or that of nobody.
type turn struct {
	id    permit.ID
	till  int64
	since int64 // 0 if nobody comes before it any more
}

// queue puts a caller that may go on among those that wait for their turn, and removes one that may not. It returns its
// place, 0 for none, and since when it waits.
func (g *slidingLog) queue(v permit.Reservation, now int64, may bool) (place, since int64) {
	g.ahead = slices.DeleteFunc(g.ahead, func(t turn) bool {
		return t.till <= now || t.id == v.ID && (!may || v.Since > 0)
	})
	i := slices.IndexFunc(g.ahead, func(t turn) bool { return t.id == v.ID })
	switch {
	case !may:
		return 0, 0
	case i < 0:
		since = v.Since
		if since <= 0 {
			since += now
		}
		i = slices.IndexFunc(g.ahead, func(t turn) bool {
			return t.since > since || t.since == since && bytes.Compare(t.id[:], v.ID[:]) > 0
		})
		if i < 0 {
			i = len(g.ahead)
		}
		g.ahead = slices.Insert(g.ahead, i, turn{id: v.ID, since: since})
	}
	t := &g.ahead[i]
	t.till = now + g.interval()
	if i == 0 && (v.Since == 0 || !v.Stand) {
		t.since = 0
	}
	return int64(i + 1), t.since
}

// lacks returns how long it takes until the permits that lack have come back, except those of e.
func (g *slidingLog) lacks(e *entry, now int64) int64 {
	lacking := -g.value()
	step := int64(1)
	if len(g.ahead) == 0 || e == nil || g.ahead[0].id != e.id {
		step = max(1, min(100, g.interval()/20))
	}
	if lacking <= 0 && len(g.ahead) > 0 && g.ahead[0].id == (permit.ID{}) {
		return max(1, g.ahead[0].till-now)
	}
	at := now + step
	for _, o := range g.entries {
		if o != e && lacking > 0 {
			at, lacking = max(at, o.at+g.interval()), lacking-o.left
		}
	}
	return at - now
}
