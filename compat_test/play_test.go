// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A play is a scenario on two limiters.
type play struct {
	matrix
	where           where
	names           [2]string // of the limiters
	together, alone [2]side   // on each of them; [0] acts, [1] observes

	known       map[string]difference // in Redis since an earlier step
	late        slack
	ids         map[string][]string // of the differences met, by operation
	unexplained []string
}

// steps does the steps of a phase.
func (p *play) steps(t testing.TB, phase string, who int, steps []step) {
	t.Helper()
	for _, st := range steps {
		if st.operation == "getExpireTime" && who == 1 && phase == "observe" && !p.version.since("3.20.1") {
			continue
		}
		st = st.of(p.where.typ)
		before := p.known
		p.known = map[string]difference{}
		for _, diff := range p.step(t, phase, st, p.together[who], p.alone[who]) {
			p.known[diff.what] = diff
			if b, ok := before[diff.what]; !ok || !diff.persists(b) {
				p.enter(phase, st, diff)
			}
		}
	}
}

// enter enters a difference in the row of the matrix to which it belongs.
func (p *play) enter(phase string, st step, diff difference) {
	row := p.where.scenario.operation
	id := explain(p.where, diff)
	if id == "" {
		p.unexplained = append(p.unexplained,
			fmt.Sprintf("Redisson %s, %s, %s, %s (%s):\n  %v", p.version, p.where.direction, p.where.typ, row, p.where.scenario.name, diff))
		id = "?"
	}
	if phase != "act" && ownDifference(id) {
		row = st.operation
	}
	p.ids[row] = append(p.ids[row], id)
}

// of returns the step with the type under test.
func (st step) of(typ string) step {
	st.args = slices.Clone(st.args)
	for i, arg := range st.args {
		switch {
		case arg == typeOf && typ == "OVERALL", arg == otherType && typ != "OVERALL":
			st.args[i] = "OVERALL"
		case arg == typeOf, arg == otherType:
			st.args[i] = "PER_CLIENT"
		}
	}
	return st
}

// A where is the place of a difference in the matrix.
type where struct {
	version   version
	scenario  scenario
	direction direction
	typ       string
	lacks     bool
}

// A difference is what differs, after a step, between the two sides together and Redisson alone.
type difference struct {
	phase, step     string
	what            string // "answer", "elapsed", or a key such as "hash rate", "value", "value ttl", "permits used"
	together, alone string
	state           map[string]string // the snapshot of the sides together
}

func (d difference) String() string {
	return fmt.Sprintf("%s: after %s: %s: %s together, %s alone", d.phase, d.step, d.what, d.together, d.alone)
}

// persists reports whether d is the difference b, met again after a later step.
func (d difference) persists(b difference) bool {
	return d.what != "answer" && d.what != "elapsed" &&
		(strings.HasSuffix(d.what, " ttl") || d.together == b.together && d.alone == b.alone)
}

// elapsedTolerance allows for a busy machine; the waits of the scenarios are longer.
const elapsedTolerance = 300 * time.Millisecond

// A slack is by how many ms the times in two limiters may differ: a few, and as long as the calls took that set and
// read them, because the two limiters are used concurrently but not at one instant.
type slack struct {
	steps, reading time.Duration
	busy           time.Duration // the time of all calls, except waits, and of the snapshots, and by how much pauses were longer
}

func (s slack) ms() int64 { return 5 + (s.steps + s.reading).Milliseconds() }

// step does one step on both limiters concurrently and compares them.
func (p *play) step(t testing.TB, phase string, st step, together, alone side) []difference {
	t.Helper()
	if st.pause > 0 {
		began := time.Now()
		time.Sleep(st.pause)
		p.late.busy += time.Since(began) - st.pause
		return nil
	}
	var answers [2]string
	var elapsed [2]time.Duration
	var both sync.WaitGroup
	for i, s := range [2]side{together, alone} {
		both.Go(func() {
			began := time.Now()
			answers[i] = s.do(st.operation, p.names[i], st.args...)
			elapsed[i] = time.Since(began)
			answers[i] = strings.ReplaceAll(answers[i], p.names[i], "NAME")
		})
	}
	both.Wait()
	text := strings.TrimSpace(fmt.Sprint(append([]any{st.operation}, st.args...)...))
	compared.Add(1)
	waits := strings.HasSuffix(strings.ToLower(st.operation), "acquire")
	if apart := (elapsed[0] - elapsed[1]).Abs(); waits {
		p.late.steps = max(p.late.steps, apart)
		p.late.busy += apart
	} else {
		p.late.steps = max(p.late.steps, elapsed[0], elapsed[1])
		p.late.busy += max(elapsed[0], elapsed[1])
	}
	reading := time.Now()
	a, b := p.snapshots(t, p.names)
	p.late.reading = time.Since(reading)
	p.late.busy += p.late.reading
	var out []difference
	differ := func(what, together, alone string) {
		out = append(out, difference{phase, text, what, together, alone, a})
	}
	if !same(st.operation, answers[0], answers[1], p.late) {
		differ("answer", answers[0], answers[1])
	}
	if waits && (elapsed[0]-elapsed[1]).Abs() > elapsedTolerance {
		differ("elapsed", elapsed[0].String(), elapsed[1].String())
	}
	union := maps.Clone(a)
	maps.Copy(union, b)
	for _, what := range slices.Sorted(maps.Keys(union)) {
		va, vb := a[what], b[what]
		if va == "" {
			va = absent
		}
		if vb == "" {
			vb = absent
		}
		if !same(what, va, vb, p.late) {
			differ(what, va, vb)
		}
	}
	return out
}

// same reports whether a and b are equal. Times may differ by late.
func same(what, a, b string, late slack) bool {
	if a == b {
		return true
	}
	if what != "remainTimeToLive" && what != "getExpireTime" && !strings.HasSuffix(what, " ttl") {
		return false
	}
	na, errA := strconv.ParseInt(a, 10, 64)
	nb, errB := strconv.ParseInt(b, 10, 64)
	return errA == nil && errB == nil && na > 0 && nb > 0 && max(na-nb, nb-na) <= late.ms()
}

// snapshots returns all that Redis holds of two limiters: "hash FIELD", "value", "permits used", "permits members" and the
// TTL of each, with " of client" and " of newest" for the keys of these clients.
func (m matrix) snapshots(t testing.TB, names [2]string) (a, b map[string]string) {
	t.Helper()
	pipe, looks := m.rdb.Pipeline(), [2]*redis.Cmd{}
	for i, name := range names {
		looks[i] = twinLook.Eval(t.Context(), pipe, twinKeys(name, [2]string{m.java.id, m.newest.id}))
	}
	_, _ = pipe.Exec(t.Context()) // each command has its own error
	var out [2]map[string]string
	for i := range looks {
		out[i] = redistest.Must(parseState(looks[i]))(t).byName(m.java != m.newest)
	}
	return out[0], out[1]
}
