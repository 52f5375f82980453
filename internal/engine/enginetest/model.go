package enginetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A limiter is one limiter of a Server. It has one log for all processes, or one for each process if it is
// PerClient.
type limiter struct {
	name    string
	rate    permit.Rate
	changed bool
	err     error // the error of every call to it, if any
	cool    int64 // in milliseconds; no permits are granted before
	logs    map[int]*slidingLog
	audit   int
}

// A slidingLog records the grants of a limiter. It counts exactly, to the millisecond, as scripts/acquire.lua does.
type slidingLog struct {
	rate    permit.Rate
	entries []*entry // ordered by their instants; expired ones stay until a call reclaims them
	wires   []wire   // tripwires of processes whose callers wait
	ahead   []turn   // of callers that hold permits that lack, or want to
	ever    []*entry // all grants ever made, without permits refunded or released
}

// An entry is one grant.
type entry struct {
	id      permit.ID
	at      int64 // in milliseconds
	left    int64 // permits still in use
	granted int64
	by      int  // the tag of the process; 0 for Redisson
	told    bool // it was granted without the server and reconciled later
}

// A wire is a tripwire: a sign that callers of a process wait.
type wire struct {
	tag, wants int
	at         int64
}

func (l *limiter) log(process int) *slidingLog {
	if l.rate.Type == permit.Overall {
		process = 0
	}
	if l.logs[process] == nil {
		l.logs[process] = &slidingLog{}
	}
	g := l.logs[process]
	g.rate = l.rate
	return g
}

func (g *slidingLog) interval() int64 { return g.rate.Interval.Milliseconds() }

// value returns the permits left if only reclaimed permits count as free.
func (g *slidingLog) value() int64 {
	n := g.rate.Permits
	for _, e := range g.entries {
		n -= e.left
	}
	return n
}

// used returns the permits in use.
func (g *slidingLog) used(now int64) (n int64) {
	for _, e := range g.entries {
		if e.at > now-g.interval() {
			n += e.left
		}
	}
	return n
}

// reclaim removes the entries granted at due or before, and the tripwires, which are older than any entry.
func (g *slidingLog) reclaim(due int64) (wires []wire) {
	g.entries = slices.DeleteFunc(g.entries, func(e *entry) bool { return e.at <= due })
	wires, g.wires = g.wires, nil
	return wires
}

func (g *slidingLog) add(id permit.ID, at, permits int64, by int) {
	e := &entry{id: id, at: at, left: permits, granted: permits, by: by}
	g.ever = append(g.ever, e)
	g.insert(e)
}

func (g *slidingLog) insert(e *entry) {
	i := len(g.entries)
	for i > 0 && g.entries[i-1].at > e.at {
		i--
	}
	g.entries = slices.Insert(g.entries, i, e)
}

func (g *slidingLog) find(id permit.ID) *entry {
	for _, e := range g.entries {
		if e.id == id {
			return e
		}
	}
	return nil
}

func (g *slidingLog) remove(e *entry) {
	g.entries = slices.DeleteFunc(g.entries, func(o *entry) bool { return o == e })
}

// release returns permits, beginning with the newest grants.
func (g *slidingLog) release(now, permits int64) {
	for i := len(g.entries) - 1; i >= 0 && permits > 0 && g.entries[i].at > now-g.interval(); i-- {
		e := g.entries[i]
		n := min(permits, e.left)
		e.left, e.granted, permits = e.left-n, e.granted-n, permits-n
	}
}

// pause returns how much of the minimum gap is still to be kept.
func (g *slidingLog) pause(now int64, except *entry) int64 {
	for i := len(g.entries) - 1; i >= 0 && g.rate.MinGap > 0; i-- {
		if e := g.entries[i]; e != except && e.at <= now {
			return e.at + min(g.rate.MinGap.Milliseconds()*e.left, g.interval()) - now
		}
	}
	return 0
}

// worst returns the largest number of permits granted in any window of one interval.
func (g *slidingLog) worst(told bool) (most int64) {
	all := slices.DeleteFunc(slices.Clone(g.ever), func(e *entry) bool { return e.told && !told })
	slices.SortFunc(all, func(a, b *entry) int { return int(a.at - b.at) })
	sum, oldest := int64(0), 0
	for _, e := range all {
		for sum += e.granted; all[oldest].at <= e.at-g.interval(); oldest++ {
			sum -= all[oldest].granted
		}
		most = max(most, sum)
	}
	return most
}

// acquire decides b at the instant now, for the process with that tag.
func (g *slidingLog) acquire(b *permit.Batch, now, cool int64, tag int) permit.Reply {
	a := permit.Reply{Granted: make([]int64, len(b.Runs)), Now: time.UnixMilli(now), Rate: g.rate, NoTTL: !b.NoTTL}
	possible := false
	for i, r := range b.Runs {
		if r.Permits > g.rate.Permits {
			a.Granted[i] = -1
		} else {
			possible = true
		}
	}
	if !possible {
		return permit.Reply{Granted: a.Granted, Rate: permit.Rate{Permits: g.rate.Permits}}
	}
	grace := int64(0)
	if b.Allowance.On {
		grace = b.Allowance.Grace.Milliseconds()
	}
	wires := g.reclaim(now - g.interval() - grace)
	save := false // save the free permits up for another process
	for _, w := range wires {
		save = save || b.Allowance.On && w.tag != tag && w.wants > 0 && g.fresh(w, now)
	}
	earlier, wanted := g.findEarlier(b, &a)
	value := g.value()
	var need, wait, soon int64
	pause := int64(0)
	cooling := max(0, cool-now)
	if cooling > 0 {
		value, wait, soon = 0, cooling, cooling
	} else {
		pause = g.pause(now, nil)
		if grace > 0 && b.Allowance.May > 0 && value < wanted {
			value += g.takeYoung(b, now, wanted-value, &a.Others)
		}
		spend := value
		if save {
			spend = min(value, b.Allowance.May)
		}
		for i, r := range b.Runs {
			if a.Granted[i] < 0 {
				continue
			}
			if !earlier && spend >= r.Permits && pause <= 0 && (need == 0 || !b.InOrder) {
				n := min(r.Count, spend/r.Permits, permit.Max/r.Permits)
				if g.rate.MinGap > 0 {
					n, pause = 1, min(g.rate.MinGap.Milliseconds()*r.Permits, g.interval())
				}
				if !b.DryRun {
					g.add(b.ID.Run(i), now, r.Permits*n, tag)
					value -= r.Permits * n
				}
				spend -= r.Permits * n
				a.Granted[i] = n
			}
			if a.Granted[i] < r.Count {
				if spend >= r.Permits && pause <= 0 && !b.DryRun && (need == 0 || !b.InOrder) {
					a.Next = permit.Rest
				}
				if need == 0 {
					need = r.Permits
				}
			}
		}
		if need > 0 && a.Next == permit.Done {
			switch {
			case value < need:
				wait, soon = g.wait(now, need-value, grace, b.Allowance.Age)
			case save:
				wait, soon = max(1, min(grace, 100)), 1
			}
			wait, soon = max(wait, pause), max(soon, pause)
		}
	}
	if b.Allowance.On {
		a.Others.Soon = ms(soon)
		g.tell(b, &a.Others, wires, need > 0, now, tag)
	}
	a.Wait, a.Available = ms(wait), max(0, value)
	return a
}

// findEarlier fills in what b was granted if it ran before, and returns how many permits it still asks for.
func (g *slidingLog) findEarlier(b *permit.Batch, a *permit.Reply) (earlier bool, wanted int64) {
	for i, r := range b.Runs {
		if a.Granted[i] < 0 {
			continue
		}
		if e := g.find(b.ID.Run(i)); b.Replay && e != nil {
			a.Granted[i], earlier = min(r.Count, (e.left+r.Permits-1)/r.Permits), true
		}
		wanted += r.Permits * (r.Count - a.Granted[i])
	}
	return earlier, wanted
}

// takeYoung reclaims as many permits within their grace as b may take, and returns how many it reclaimed.
func (g *slidingLog) takeYoung(b *permit.Batch, now, short int64, o *permit.Others) (taken int64) {
	var part []*entry
	sum := int64(0)
	for _, e := range g.entries {
		if e.at >= now-g.interval()-b.Allowance.Age && e.at <= now-g.interval() {
			part, sum = append(part, e), sum+e.left
		}
	}
	value, p := g.value(), b.Runs[0].Permits
	n := min(short, b.Allowance.May, sum)
	if len(b.Runs) == 1 || value+n < p {
		n = (value+n)/p*p - value
	}
	for _, e := range part {
		if k := min(e.left, n-taken); k > 0 {
			if e.left -= k; e.left == 0 {
				g.remove(e)
			}
			taken += k
		}
	}
	o.Young = taken
	return taken
}

// wait returns the time until short more permits can be taken, and the time until those permits fall due.
func (g *slidingLog) wait(now, short, grace, age int64) (wait, soon int64) {
	var at, soonAt, sum, fresh int64
	for _, e := range g.entries {
		due := min(e.at, now) + g.interval()
		if at == 0 {
			if sum += e.left; sum >= short {
				at = due
			}
		}
		if grace > 0 && soonAt == 0 && due >= now-age {
			if fresh += e.left; fresh >= short {
				soonAt = max(due, at)
			}
		}
	}
	wait = max(1, at+grace-now)
	if soonAt == 0 {
		soonAt = now + wait
	}
	return wait, max(0, soonAt-now)
}

func (g *slidingLog) fresh(w wire, now int64) bool { return now-w.at <= 3*g.interval()+1000 }

// tell reports who takes part in the limiter, and plants the tripwires of those who wait.
func (g *slidingLog) tell(b *permit.Batch, o *permit.Others, wires []wire, need bool, now int64, tag int) {
	if b.Allowance.Survey && need && o.Soon > 0 {
		for n, i := 0, len(g.entries)-1; n < 128 && i >= 0 && g.entries[i].at > now-g.interval(); n, i = n+1, i-1 {
			switch e := g.entries[i]; {
			case e.by == tag:
				o.Mine += e.left
			case e.by == 0:
				o.Java += e.left
			default:
				o.Kin += e.left
				if !slices.Contains(o.Tags, int64(e.by)) {
					o.Tags = append(o.Tags, int64(e.by))
				}
			}
		}
	}
	own := wire{tag, b.Allowance.Wants, now}
	for _, w := range wires {
		switch {
		case w.tag == tag:
			o.WireFound = true
			if w.wants == own.wants && now-w.at <= g.interval() {
				own = w
			}
		case g.fresh(w, now):
			o.Waiting = append(o.Waiting, int64(w.tag), int64(w.wants))
			g.wires = append(g.wires, w)
		}
	}
	if o.WireLeft = need; need {
		g.wires = append(g.wires, own)
	}
}

// refund returns the unclaimed permits of a grant. A grant that is gone is not returned twice.
func (g *slidingLog) refund(r permit.Grant) {
	e := g.find(r.ID)
	if e == nil || e.left != r.Permits {
		return
	}
	if e.left, e.granted = r.Keep, e.granted-(r.Permits-r.Keep); r.Keep == 0 {
		g.remove(e)
	}
}

// check returns an error if a batch is invalid.
func check(b *permit.Batch) error {
	n := int64(0)
	for _, r := range b.Runs {
		if r.Permits < 1 || r.Permits > permit.Max || r.Count < 1 {
			return fmt.Errorf("a run of %d times %d permits", r.Count, r.Permits)
		}
		n += r.Count
	}
	switch {
	case len(b.Runs) == 0 || len(b.Runs) > permit.MaxRuns || n > permit.MaxRequests:
		return fmt.Errorf("%d requests in %d runs", n, len(b.Runs))
	case b.ID == (permit.ID{}):
		return fmt.Errorf("no ID")
	case b.ID[7] != 0:
		return fmt.Errorf("the ID is that of run %d", b.ID[7])
	}
	return nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
