// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/goredisson/ratelimiter/internal/survey"
)

// All looks at the limiters that a query describes and at what deleted ones have left, at most at that many of them. What
// nothing but its name makes a limiter is no limiter: it is not counted.
// Of the clients of a PER_CLIENT limiter it looks at a few. It calls found, which may be nil, after each limiter. A server
// that does not reply within one and a half seconds is in Skipped, with the limiters of the others in the report; if none does, All
// returns an error.
func (d *Doctor) All(ctx context.Context, q survey.Query, most int, found func(*Report)) (*Report, error) {
	r := &Report{Findings: []Finding{}, Skipped: []Skip{}}
	q.Remains = true
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
	for l, err := range d.Survey.Find(ctx, q) {
		if err != nil {
			if err := skip("find", err); err != nil {
				return nil, err
			}
			continue
		}
		if d.away[l.Node] || r.Limiters == most && l.Unsure {
			continue
		}
		if r.Limiters == most {
			r.skip(Skip{Check: "find"}, false, fmt.Errorf("only the first %d limiters were looked at", most))
			break
		}
		if l.Kind == survey.Told {
			r.Limiters++
			continue
		}
		ours, err := d.one(ctx, l.Name, clients[l.Name], r)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			d.miss(r, Skip{Check: "read", Limiter: l.Name, Node: l.Node}, err)
		}
		if !ours && err == nil {
			continue
		}
		r.Limiters++
		idle.add(l)
		if found != nil {
			found(r)
		}
	}
	r.Findings = append(r.Findings, idle.findings(d.target())...)
	return r, nil
}

// sampleClients is how many clients of a limiter All looks at.
const sampleClients = 8

// one looks at a limiter, some of whose clients are known. It reports whether the keys are those of a limiter, and finds
// nothing if they are not.
func (d *Doctor) one(ctx context.Context, name string, clients []string, r *Report) (ours bool, err error) {
	p := &patient{name: name, divided: d.Survey.Divided(), to: d.target()}
	skip := func(check string, err error) error {
		if ctx.Err() == nil && survey.Unreachable(err) {
			return err
		}
		r.skip(Skip{Check: check, Limiter: name}, isMinor(check), err)
		return ctx.Err()
	}
	if p.main, err = d.Survey.Read(ctx, name, ""); err != nil {
		return false, err
	}
	for _, id := range clients[:min(sampleClients, len(clients))] {
		st, err := d.read(ctx, name, id, skip)
		if err != nil {
			return false, err
		}
		p.clients = append(p.clients, st)
	}
	if p.leaveOut(); !p.ours() {
		return false, nil
	}
	if p.main, err = d.whole(ctx, p.main, skip); err != nil {
		return true, err
	}
	p.more = len(clients) > sampleClients
	if twin := twinOf(name); twin != "" {
		st, err := d.Survey.Read(ctx, twin, "")
		if err != nil {
			return true, err
		}
		if st.HashShows() {
			p.twin = twin
		}
	}
	if err := d.frequency(ctx, p, skip); err != nil {
		return true, err
	}
	for _, f := range append(d.drift(p), p.examine()...) {
		if f.Severity > Info || f.Check == "cool-down" || f.Check == "hot-key" {
			r.Findings = append(r.Findings, f)
		}
	}
	return true, nil
}
