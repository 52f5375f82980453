// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// All looks at the limiters that a query describes and at what deleted ones have left, at most at that many of them. What
// nothing but its name makes a limiter is no limiter: it is not counted.
// Of the clients of a PER_CLIENT limiter it looks at a few. It calls found, which may be nil, after each limiter. A server
// that does not reply within one and a half seconds is in Skipped, with the limiters of the others in the report; if none does, All
// returns an error.
func (d *Doctor) All(ctx context.Context, q survey.Query, most int, found func(*Report)) (*Report, error) {
	r := &Report{Findings: []Finding{}, Skipped: []Skip{}}
	q.Remains, q.Broken = true, true
	idle := groups{}
	// skip notes what is not found because of err. A server that does not reply is asked no more.
	skip := func(check string, err error) error {
		var node *survey.NodeError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &node):
			r.skip(Skip{Check: check}, false, err)
		default:
			d.miss(r, Skip{Check: check, Node: node.Node}, node.Err)
		}
		return nil
	}
	var err error
	if q.Nodes, err = d.nodes(ctx, r); err != nil {
		return nil, err
	}
	clients, err := d.Survey.ClientIDs(ctx, q, sampleClients+1, most)
	if err != nil {
		if err := skip("clients", err); err != nil {
			return nil, err
		}
	}
	if q.Nodes, err = d.nodes(ctx, r); err != nil {
		return nil, err
	}
	// Limiters are looked at several at a time, and what is found is noted in the order in which they were.
	var batch []*survey.Limiter
	seen := 0
	look := func() error {
		examined := make([]examined, len(batch))
		d.parallel(len(batch), func(i int) { examined[i] = d.one(ctx, batch[i].Name, clients) })
		for i, x := range examined {
			l := batch[i]
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.Findings, r.Skipped = append(r.Findings, x.findings...), append(r.Skipped, x.skipped...)
			if x.err != nil {
				d.miss(r, Skip{Check: "read", Limiter: l.Name, Node: l.Node}, x.err)
			}
			if !x.ours && x.err == nil {
				seen--
				continue
			}
			r.Limiters++
			idle.add(l)
			if found != nil {
				found(r)
			}
		}
		batch = batch[:0]
		return nil
	}
	for l, err := range d.Survey.Find(ctx, q) {
		if err != nil {
			if err := skip("find", err); err != nil {
				return nil, err
			}
			continue
		}
		if l.Kind != survey.Told && !d.away[l.Node] && (len(batch) == 4*d.width() || seen == most) {
			if err := look(); err != nil {
				return nil, err
			}
		}
		if d.away[l.Node] || seen == most && l.Unsure {
			continue
		}
		if seen == most {
			r.skip(Skip{Check: "find"}, false, fmt.Errorf("looked at only the first %s", permit.Counted(most, "limiter")))
			break
		}
		seen++
		if l.Kind == survey.Told {
			r.Limiters++
			continue
		}
		batch = append(batch, l)
	}
	if err := look(); err != nil {
		return nil, err
	}
	r.Findings = append(r.Findings, idle.findings(d.target())...)
	return r, nil
}

// sampleClients is how many clients of a limiter All looks at.
const sampleClients = 8

// parallel calls f for the numbers below n, several at a time.
func (d *Doctor) parallel(n int, f func(i int)) {
	var all sync.WaitGroup
	turns := make(chan struct{}, d.width())
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			f(i)
		})
	}
	all.Wait()
}

func (d *Doctor) width() int { return cmp.Or(d.Parallel, 16) }

// An examined is what one has found.
type examined struct {
	ours     bool // the keys are those of a limiter
	findings []Finding
	skipped  []Skip
	err      error
}

// one looks at a limiter, some of whose clients are known. It finds nothing if the keys are not those of a limiter.
func (d *Doctor) one(ctx context.Context, name string, known *survey.Clients) (x examined) {
	clients, unsure := known.Of(name)
	p := &patient{name: name, divided: d.Survey.Divided(), to: d.target(), hidden: unsure}
	r := &Report{}
	skip := d.skipper(ctx, r, name)
	var beside sync.WaitGroup
	beside.Go(func() { p.twin, p.twinErr = d.twin(ctx, name) })
	p.main, x.err = d.Survey.Read(ctx, name, "")
	if beside.Wait(); x.err != nil {
		return x
	}
	for _, id := range clients[:min(sampleClients, len(clients))] {
		st, err := d.read(ctx, name, id, skip)
		if err != nil {
			return examined{err: err}
		}
		p.clients = append(p.clients, st)
	}
	if p.leaveOut(); !p.ours() {
		return x
	}
	x.ours, p.more = true, len(clients) > sampleClients
	if p.main, x.err = d.whole(ctx, p.main, skip); x.err == nil {
		x.err = d.rest(ctx, p, skip)
	}
	if x.skipped = r.Skipped; x.err != nil {
		return x
	}
	for _, f := range append(d.drift(p), p.examine()...) {
		if f.Severity > Info || f.Check == "cool-down" || f.Check == "hot-key" {
			x.findings = append(x.findings, f)
		}
	}
	return x
}

// skipper returns a function that notes that a check of a limiter could not be made, and returns an error that ends the examination.
func (d *Doctor) skipper(ctx context.Context, r *Report, name string) func(check string, err error) error {
	return func(check string, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if survey.Unreachable(err) {
			return err
		}
		r.skip(Skip{Check: check, Limiter: name}, isMinor(check), err)
		return nil
	}
}

// twin returns the other limiter that has the same keys, or nothing.
func (d *Doctor) twin(ctx context.Context, name string) (string, error) {
	twin := twinOf(name)
	if twin == "" {
		return "", nil
	}
	if is, err := d.Survey.Hash(ctx, twin); err != nil || !is {
		return "", err
	}
	return twin, nil
}

// rest notes why it is not known whether another limiter has the same keys, and finds out how often this one is used.
func (d *Doctor) rest(ctx context.Context, p *patient, skip func(string, error) error) error {
	if p.twinErr != nil {
		if err := skip("twin", p.twinErr); err != nil {
			return err
		}
	}
	return d.frequency(ctx, p, skip)
}

// ours reports whether anything in the keys shows that they are a limiter's of that name. A name alone shows nothing, nor do keys that
// another limiter has.
func (p *patient) ours() bool {
	return p.main.HashShows() || p.twin == "" && p.grantsShow()
}

// grantsShow reports whether the permits of anybody show that they are a limiter's.
func (p *patient) grantsShow() bool {
	return p.main.GrantsShow() || slices.ContainsFunc(p.clients, (*survey.State).GrantsShow)
}

// leaveOut forgets the clients whose keys show nothing of a client of a limiter.
func (p *patient) leaveOut() {
	p.clients = slices.DeleteFunc(slices.Clone(p.clients), func(st *survey.State) bool {
		if p.hidden = p.hidden || st.MayHold(); !st.Shows() && st.MembersShow() {
			p.grants = append(p.grants, st)
		}
		return !st.Shows()
	})
}

// notOurs takes the commands out of what was found of keys that nothing shows to be a limiter's, because they may well be
// another program's. Calls of a limiter of that name fail all the same.
func (p *patient) notOurs(list []Finding) []Finding {
	for i := range list {
		fix := say("it looks like none of ours: nothing in the data shows a limiter; find out who writes to %q", p.name)
		list[i].Severity = min(Warning, list[i].Severity)
		list[i].advise(fix)
	}
	return list
}
