package enginetest

import (
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
	first := v.Ahead && g.queue(v.ID, now, may && g.rate.MinGap == 0)
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
		case v.Ahead:
			n = 0
			if g.rate.MinGap == 0 {
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
	case first && n > 0 && a.Lacking == 0:
		pause := min(g.interval(), (4*g.interval()*v.Want+g.rate.Permits-1)/g.rate.Permits)
		if 4*v.Want > 3*g.rate.Permits {
			pause = g.interval() + min(25, (g.interval()+9)/10)
		}
		g.ahead[0] = turn{till: now + max(1, pause)}
	case a.Lacking > 0:
		a.Wait = ms(g.lacks(e, now))
	}
	return a
}

// A turn is that of a caller to hold permits that lack, or that of nobody.
type turn struct {
	id   permit.ID
	till int64
}

// queue puts a caller that may go on behind those that wait for their turn, and removes one that may not. It
// reports whether it is its turn.
func (g *slidingLog) queue(id permit.ID, now int64, may bool) bool {
	g.ahead = slices.DeleteFunc(g.ahead, func(t turn) bool { return t.till <= now || t.id == id && !may })
	i := slices.IndexFunc(g.ahead, func(t turn) bool { return t.id == id })
	if i < 0 && may && len(g.ahead) < 16 {
		i, g.ahead = len(g.ahead), append(g.ahead, turn{id: id})
	}
	if i >= 0 {
		g.ahead[i].till = now + g.interval()
	}
	return i == 0
}

// lacks returns how long it takes until the permits that lack have come back, except those of e.
func (g *slidingLog) lacks(e *entry, now int64) int64 {
	lacking := -g.value()
	step := int64(1)
	if len(g.ahead) == 0 || e == nil || g.ahead[0].id != e.id {
		step = max(1, min(100, g.interval()/100))
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
