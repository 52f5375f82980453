// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at limiters in Redis and at the servers that hold them, and says what is wrong, what that does
// to the callers in Java and in Go, and how to fix it. It writes nothing.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A Severity tells how urgent a finding is.
type Severity int

const (
	Info     Severity = iota // worth knowing; nothing is wrong
	Warning                  // wrong, or about to become so
	Critical                 // callers are rejected, or admitted, against the rate now
)

// String returns the severity in one word.
func (s Severity) String() string {
	switch s {
	case Warning:
		return "warning"
	case Critical:
		return "critical"
	}
	return "info"
}

// MarshalText returns what String returns.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Finding is one thing that a check has found.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Limiter  string   `json:"limiter,omitempty"`        // empty for a server
	Base64   string   `json:"limiter_base64,omitempty"` // if its name has bytes that cannot be printed
	Client   string   `json:"client,omitempty"`         // whose keys of a PER_CLIENT limiter
	Node     string   `json:"node,omitempty"`
	Found    string   `json:"found"` // what there is, with its numbers
	Means    string   `json:"means"`
	Java     string   `json:"java"`          // what it does to callers of Redisson
	Go       string   `json:"go"`            // what it does to callers of this package
	Fix      string   `json:"fix,omitempty"` // a command, or what to do
	// Commands are those of Fix that can be run at once, in this order, whatever is known of the services: none of them frees
	// permits that are in use, ends a cool-down or touches the data of another program. They can be pasted into a shell.
	Commands []Cmd `json:"commands,omitempty"`
	// Then are those of Fix that follow, each when its time has passed since the commands before it.
	Then []Step `json:"then,omitempty"`
	// Alternatives are those of Fix that only somebody can choose who knows whether their condition holds; one at most is right.
	Alternatives []Step `json:"alternatives,omitempty"`

	FoundText, FixText Text `json:"-"` // Found and Fix, for other languages

	waiting int64 // callers that wait because of it, as far as that is known
}

// A Skip is something that could not be looked at.
type Skip struct {
	Check   string `json:"check"`
	Limiter string `json:"limiter,omitempty"`
	Node    string `json:"node,omitempty"`
	Why     string `json:"why"`
	// Minor is set for a check whose outcome says nothing about the limiters themselves, and that the server does not
	// let us make, as those of managed services that have no CONFIG.
	Minor bool `json:"minor,omitempty"`
}

// A Report is what a Doctor has found.
type Report struct {
	Limiters int       `json:"limiters"` // how many were looked at
	Findings []Finding `json:"findings"`
	Skipped  []Skip    `json:"skipped"`
	// Note is what the commands of the findings need beside what they have.
	Note string `json:"note,omitempty"`
}

// Add takes in a report about other things.
func (r *Report) Add(other *Report) {
	r.Limiters += other.Limiters
	r.Findings, r.Skipped = append(r.Findings, other.Findings...), append(r.Skipped, other.Skipped...)
}

// Groups returns the findings of which it takes one explanation, the worst first: those of one check that mean the same, and of these
// the one for which most callers wait.
func (r *Report) Groups() (groups [][]Finding) {
	list := slices.Clone(r.Findings)
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(b.waiting, a.waiting))
	})
	type key struct {
		check, means string
		severity     Severity
		server       bool
	}
	at := map[key]int{}
	for _, f := range list {
		k := key{f.Check, f.Means, f.Severity, f.Limiter == ""}
		if _, ok := at[k]; !ok {
			at[k] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[k]] = append(groups[at[k]], f)
	}
	return groups
}

// Needs returns what the commands of the findings need, which are about to, beside what they have.
func (r *Report) Needs(to Target) Text {
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return len(f.FixText.runs) > 0 }) {
		return to.Note()
	}
	return Text{}
}

// Sick reports whether there is a finding that is more than Info.
func (r *Report) Sick() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity > Info })
}

// Blind reports whether something was not looked at that may be unhealthy.
func (r *Report) Blind() bool {
	return slices.ContainsFunc(r.Skipped, func(s Skip) bool { return !s.Minor })
}

// skip notes that something could not be looked at because of err. A check is minor if it is said to be, and the server
// has replied.
func (r *Report) skip(s Skip, minor bool, err error) {
	s.Why, s.Minor = oneLine(err), minor && !survey.Unreachable(err)
	r.Skipped = append(r.Skipped, s)
}

// A Doctor looks at the limiters of one Redis, once.
type Doctor struct {
	Survey *survey.Survey
	// Nodes are the servers that hold limiters; nil if that is to be found out.
	Nodes []survey.Node
	// MaxClients is how many clients of a PER_CLIENT limiter are looked at; 0 for 100.
	MaxClients int
	// Sample is for how long Limiter watches a limiter for clocks that are slow; 0 for not at all.
	Sample time.Duration
	// Parallel is how many limiters All reads at a time; 0 for 16.
	Parallel int
	// Drift compares a limiter, whose hash is sound, with what it should be, and returns that rate with the command that sets
	// it. It returns an empty text if there is no difference. It may be nil.
	Drift func(*survey.State) (found string, want permit.Rate, fix Cmd)
	// To is the Redis that the commands of the findings are about; nil for what the options of the survey's client tell.
	To *Target

	noFrequency atomic.Bool // the servers keep none
	drifts      sync.Mutex  // one call of Drift at a time

	reached bool
	up      []survey.Node   // those that have replied
	away    map[string]bool // addresses of those that have not, or no longer
	upErr   error
}

// target returns the Redis that commands are about.
func (d *Doctor) target() Target {
	if d.To != nil {
		return *d.To
	}
	return TargetOf(d.Survey.Client())
}

// patience is how long a server may take to reply before it counts as not looked at.
const patience = 1500 * time.Millisecond

// nodes returns the servers that reply, and notes the others in r, each once.
func (d *Doctor) nodes(ctx context.Context, r *Report) ([]survey.Node, error) {
	if !d.reached {
		var down []*survey.NodeError
		if d.away = map[string]bool{}; d.Nodes != nil {
			d.up, down = survey.Answering(ctx, d.Nodes, patience)
		} else {
			d.up, down, d.upErr = d.Survey.Reach(ctx, patience)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d.reached = true
		if d.upErr != nil && len(d.up) > 0 {
			r.skip(Skip{Check: "find"}, false, d.upErr)
		}
		for _, e := range down {
			d.lose(r, e.Node, "server", e.Err)
		}
		if len(d.up) == 0 && d.upErr == nil {
			d.upErr = down[0]
		}
	}
	if len(d.up) == 0 {
		return nil, d.upErr
	}
	return slices.DeleteFunc(slices.Clone(d.up), func(n survey.Node) bool { return d.away[n.Addr] }), nil
}

// miss notes that something could not be looked at because of err. A server that does not reply is lost.
func (d *Doctor) miss(r *Report, s Skip, err error) {
	if survey.Unreachable(err) {
		d.lose(r, s.Node, s.Check, err)
	} else {
		r.skip(s, false, err)
	}
}

// lose notes that a server does not reply. It is asked no more.
func (d *Doctor) lose(r *Report, node, check string, err error) {
	if !d.away[node] {
		r.skip(Skip{Check: check, Node: node}, false, err)
	}
	d.away[node] = true
}

// A patient is one limiter with everything that the checks look at.
type patient struct {
	name    string
	divided bool
	to      Target
	main    *survey.State   // the hash, and the keys that all clients share
	later   *survey.State   // main, read once more after the sample; nil without
	clients []*survey.State // of each client that has keys
	more    bool            // there are more clients than were read
	grants  []*survey.State // of the clients that were left out, those whose members are grants
	partial bool            // not all that has permits in use was looked for
	hidden  bool            // a client was left out that may have grants, though nothing shows that they are a limiter's
	twin    string          // the other limiter that has the same keys, or empty
	twinErr error           // why that is not known
	memory  int64           // of the members, in bytes; 0 if it is not known
	uses    int64           // the LFU counter of the hash, which every call reads; 0 if it is not known
}

// states returns all states of the patient's grants: those of the type that it has, or of both if that is not known.
func (p *patient) states() []*survey.State {
	switch {
	case p.main.Problem != nil:
	case p.main.Rate.Type == permit.PerClient:
		return p.clients
	default:
		return []*survey.State{p.main}
	}
	return append([]*survey.State{p.main}, p.clients...)
}

// Limiter looks at one limiter. A limiter that does not exist, and has left nothing behind, is an error that wraps
// permit.ErrNotInitialized.
func (d *Doctor) Limiter(ctx context.Context, name string) (*Report, error) {
	p := &patient{name: name, divided: d.Survey.Divided(), to: d.target()}
	r := &Report{Limiters: 1, Findings: []Finding{}, Skipped: []Skip{}}
	skip := d.skipper(ctx, r, name)
	var err error
	if p.main, err = d.first(ctx, name, skip); err != nil {
		return nil, err
	}
	if err := d.findClients(ctx, p, skip); err != nil {
		return nil, err
	}
	p.twin, p.twinErr = d.twin(ctx, name)
	if p.leaveOut(); errors.Is(p.main.Problem, permit.ErrNotInitialized) && !p.ours() {
		left := "nothing that it has left behind"
		switch {
		case p.twin != "" && p.grantsShow():
			left = fmt.Sprintf("its keys are those of the limiter %q", p.twin)
		case p.main.Types != [3]string{"none", "none", "none"}:
			left = "what has keys of that name looks like none of ours"
		}
		return nil, fmt.Errorf("%w: there is no limiter %q, and %s", permit.ErrNotInitialized, name, left)
	}
	if p.main.Count > manyMembers {
		if p.memory, err = d.Survey.Memory(ctx, name, p.main.Keys[2]); err != nil {
			if err := skip("huge-set", err); err != nil {
				return nil, err
			}
		}
	}
	if err := d.rest(ctx, p, skip); err != nil {
		return nil, err
	}
	if d.Sample > 0 && p.main.Count > 0 {
		select {
		case <-time.After(d.Sample):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if p.later, err = d.Survey.Read(ctx, name, ""); err != nil {
			if err := skip("clock", err); err != nil {
				return nil, err
			}
			p.later = nil
		}
	}
	r.Findings = append(append(r.Findings, d.drift(p)...), p.examine()...)
	return r, nil
}

// findClients reads the clients of a limiter, which takes a look at all keys. An OVERALL limiter that shows itself to be one has none;
// what is left of those that it had with another type is for All.
func (d *Doctor) findClients(ctx context.Context, p *patient, skip func(string, error) error) error {
	if p.main.Problem == nil && p.main.Rate.Type == permit.Overall && p.main.HashShows() && !p.sickKeepAlive() {
		return nil
	}
	for id, err := range d.Survey.Clients(ctx, p.name) {
		if err != nil {
			p.hidden = true
			return skip("clients", err)
		}
		if len(p.clients) == cmp.Or(d.MaxClients, 100) {
			p.more = true
			return nil
		}
		st, err := d.read(ctx, p.name, id, skip)
		if err != nil {
			return err
		}
		p.clients = append(p.clients, st)
	}
	return nil
}

// first reads the keys of a limiter that all clients share, if its server replies at all.
func (d *Doctor) first(ctx context.Context, name string, skip func(string, error) error) (*survey.State, error) {
	st, err := survey.Within(ctx, patience, func(ctx context.Context) (*survey.State, error) { return d.Survey.Read(ctx, name, "") })
	if err != nil {
		return nil, fmt.Errorf("the limiter %q: %w", name, err)
	}
	return d.whole(ctx, st, skip)
}

// isMinor reports whether a check says nothing about the health of a limiter. Of changes, it says that no imbalance was
// found among them.
func isMinor(check string) bool {
	return check == "hot-key" || check == "huge-set" || check == "changes"
}

// drift compares the rate of a patient with what it should be.
func (d *Doctor) drift(p *patient) []Finding {
	if d.Drift == nil || p.main.Problem != nil || !p.ours() {
		return nil
	}
	d.drifts.Lock()
	defer d.drifts.Unlock()
	found, want, set := d.Drift(p.main)
	if found == "" {
		return nil
	}
	var fix Text
	if !p.reachesOthers() {
		fix = run(set).onlyIf(ConditionOf(want, p.main))
	}
	return []Finding{p.of(p.main, "drift", Warning, fix, "%s", found)}
}

// twinOf returns the name that has the same keys of state: {a}:value is the key of "a", and of "{a}", too.
func twinOf(name string) string {
	if !strings.Contains(name, "{") {
		return "{" + name + "}"
	}
	inner, ok := strings.CutPrefix(name, "{")
	if inner, ok2 := strings.CutSuffix(inner, "}"); ok && ok2 && inner != "" && !strings.Contains(inner, "{") {
		if redisson.Suffixed(inner, "value") == redisson.Suffixed(name, "value") {
			return inner
		}
	}
	return ""
}

// examine runs the checks of one limiter, in the order of their importance.
func (p *patient) examine() (list []Finding) {
	for _, check := range limiterChecks {
		list = append(list, check(p)...)
	}
	if !p.ours() {
		return p.notOurs(list)
	}
	return list
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Examine returns what the checks find in the states alone that somebody has read: the keys that all clients share, and
// those of clients. The commands are about to. It sends nothing, so it finds less than [Doctor.Limiter].
func Examine(to Target, main *survey.State, clients ...*survey.State) []Finding {
	if client := main; client.ClientID != "" {
		main, clients = client.Shared(), append([]*survey.State{client}, clients...)
	}
	p := &patient{name: main.Name, to: to, main: main, clients: clients, divided: !main.OneInstant, partial: true}
	p.leaveOut()
	return p.examine()
}
