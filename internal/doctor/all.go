package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/survey"
)

// All looks at the limiters that a query describes and at what deleted ones have left, at most at that many of them.
// Of the clients of a PER_CLIENT limiter it looks at a few. It calls found, which may be nil, after each limiter.
func (d *Doctor) All(ctx context.Context, q survey.Query, most int, found func(*Report)) (*Report, error) {
	r := &Report{Findings: []Finding{}, Skipped: []Skip{}}
	q.Remains = true
	idle := groups{}
	clients, err := d.Survey.ClientIDs(ctx, q, sampleClients+1, most)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.Skipped = append(r.Skipped, Skip{Check: "clients", Why: oneLine(err)})
	}
	for l, err := range d.Survey.Find(ctx, q) {
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			s := Skip{Check: "find", Why: oneLine(err)}
			var node *survey.NodeError
			if errors.As(err, &node) {
				s.Node, s.Why = node.Node, oneLine(node.Err)
			}
			r.Skipped = append(r.Skipped, s)
			continue
		}
		if r.Limiters == most {
			r.Skipped = append(r.Skipped, Skip{Check: "find", Why: fmt.Sprintf("only the first %d limiters were looked at", most)})
			break
		}
		r.Limiters++
		if l.Kind == survey.Told {
			continue
		}
		idle.add(l)
		if err := d.one(ctx, l.Name, clients[l.Name], r); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.Skipped = append(r.Skipped, Skip{Check: "read", Limiter: l.Name, Node: l.Node, Why: oneLine(err)})
		}
		if found != nil {
			found(r)
		}
	}
	r.Findings = append(r.Findings, idle.findings()...)
	return r, nil
}

// sampleClients is how many clients of a limiter All looks at.
const sampleClients = 8

// one looks at a limiter, some of whose clients are known.
func (d *Doctor) one(ctx context.Context, name string, clients []string, r *Report) error {
	p := &patient{name: name, divided: d.Survey.Divided()}
	skip := func(check string, err error) error {
		r.Skipped = append(r.Skipped, Skip{Check: check, Limiter: name, Why: oneLine(err)})
		return ctx.Err()
	}
	var err error
	if p.main, err = d.read(ctx, name, "", skip); err != nil {
		return err
	}
	for _, id := range clients[:min(sampleClients, len(clients))] {
		st, err := d.read(ctx, name, id, skip)
		if err != nil {
			return err
		}
		p.clients = append(p.clients, st)
	}
	p.more = len(clients) > sampleClients
	if twin := twinOf(name); twin != "" {
		st, err := d.Survey.Read(ctx, twin, "")
		if err != nil {
			return err
		}
		if !errors.Is(st.Problem, permit.ErrNotInitialized) {
			p.twin = twin
		}
	}
	if err := d.frequency(ctx, p, skip); err != nil {
		return err
	}
	for _, f := range append(d.drift(p), p.examine()...) {
		if f.Severity > Info || f.Check == "cool-down" || f.Check == "hot-key" {
			r.Findings = append(r.Findings, f)
		}
	}
	return nil
}
