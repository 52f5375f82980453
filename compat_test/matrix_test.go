// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// atOnce is the number of scenarios that run at once, of all versions. They sleep most of the time, but their waits are
// compared.
const atOnce = 24

// A direction tells which side acts and which observes.
type direction string

const (
	javaToGo direction = "Java→Go"
	goToJava direction = "Go→Java"
)

// TestMatrix runs every scenario with a version of each family, or with every version, in both directions and for both types, on two limiters in
// lockstep: on one the two sides work together, on the other Redisson works alone. After each step it compares the
// replies and what Redis holds. Every difference must be in the closed list of differences_test.go, with its reason.
func TestMatrix(t *testing.T) {
	found := &results{cells: map[cell][]string{}, steps: &compared}
	slots := make(chan struct{}, atOnce)
	versionsAbreast(t, func(t testing.TB, v version) {
		m := matrix{version: v, java: fleet.peer(t, v), newest: fleet.peer(t, newestListed()), rdb: redistest.Client(t)}
		m.prefix = redistest.Key(t)
		for range 20 { // a JVM's first calls take longer, and elapsed times are compared
			m.java.must(t, "isExists", m.prefix)
			_, _ = m.java.call("acquire", m.prefix, 1)
		}
		var running sync.WaitGroup
		defer running.Wait()
		for _, typ := range []string{overall, perClient} {
			for _, s := range scenarios() {
				for _, d := range []direction{javaToGo, goToJava} {
					slots <- struct{}{}
					running.Go(func() {
						defer func() { <-slots }()
						for operation, ids := range m.judged(t, s, d, typ) {
							found.add(cell{v.name, operation, d, typ}, ids)
						}
					})
				}
			}
		}
	}, func(v version) bool { return family(v) || os.Getenv(reportEnv) != "" })
	found.judge(t)
}

func newestListed() version {
	for _, v := range slices.Backward(allVersions) {
		if !v.newest {
			return v
		}
	}
	panic("no version listed")
}

type matrix struct {
	version version
	java    *peer
	newest  *peer // stands in for Redisson alone where version lacks the operation
	rdb     *redis.Client
	prefix  string // of the limiters' names
}

// The numbers of limiters made and of steps compared, by all versions together.
var limiters, compared atomic.Int64

// absent is the entry of a cell whose scenario the version does not know, equal that of one that was run.
const (
	absent = "–"
	equal  = "="
)

// heldUp is the longest time that the calls of a scenario may take together. In a longer run a window of its short
// interval may have ended between two steps for one side and not for the other. A difference then means nothing, and
// the scenario is run again.
const heldUp = short / 4

// judged runs a scenario and fails t if there is an unexplained difference.
func (m matrix) judged(t testing.TB, s scenario, d direction, typ string) (ids map[string][]string) {
	t.Helper()
	var unexplained []string
	for range 10 {
		var busy time.Duration
		if ids, unexplained, busy = m.run(t, s, d, typ); len(unexplained) == 0 || busy < heldUp {
			break
		}
	}
	for _, text := range unexplained {
		t.Errorf("%s", text)
	}
	return ids
}

// run returns the ids of the differences met, by operation. What the observer meets because its own operation differs
// belongs to that operation, whatever the scenario is about. run also returns the unexplained differences, and the
// time taken by the calls that do not wait.
func (m matrix) run(t testing.TB, s scenario, d direction, typ string) (ids map[string][]string, unexplained []string, busy time.Duration) {
	t.Helper()
	lacks := s.since != "" && !m.version.since(s.since)
	if lacks && d == javaToGo {
		return map[string][]string{s.operation: {absent}}, nil, 0
	}
	// Before 3.22.1 setRate does not know a client's own permits, so it cannot serve as a reference for ours.
	lacks = lacks || d == goToJava && typ == "PER_CLIENT" && s.operation == "setRate" && !m.version.since("3.22.1")
	var together, alone [2]side // [0] acts; setup is by [0] or [1]; [1] observes
	java := javaSide{m.java}
	setup := 1
	if lacks {
		// Go acts where this version cannot, and the version observes. On the other limiter the newest version acts
		// alone.
		together = [2]side{newGoSide(t, m.rdb, m.version, m.newest.id), java}
		alone = [2]side{javaSide{m.newest}, java}
		setup = 0
	} else {
		goes := newGoSide(t, m.rdb, m.version, m.java.id)
		alone = [2]side{java, java}
		together = [2]side{java, goes}
		if d == goToJava {
			together = [2]side{goes, java}
		}
	}
	where := where{version: m.version, scenario: s, direction: d, typ: typ, lacks: lacks}
	number := limiters.Add(1)
	names := [2]string{fmt.Sprintf("%s%d.a", m.prefix, number), fmt.Sprintf("%s%d.b", m.prefix, number)}
	ids = map[string][]string{s.operation: {equal}}
	known := map[string]difference{} // in Redis since an earlier step
	var late slack
	play := func(phase string, who int, steps []step) {
		for _, st := range steps {
			st.args = slices.Clone(st.args)
			for i, arg := range st.args {
				switch {
				case arg == typeOf && typ == "OVERALL", arg == otherType && typ != "OVERALL":
					st.args[i] = "OVERALL"
				case arg == typeOf, arg == otherType:
					st.args[i] = "PER_CLIENT"
				}
			}
			if st.operation == "getExpireTime" && who == 1 && phase == "observe" && !m.version.since("3.20.1") {
				continue
			}
			diffs := m.step(t, phase, st, names, together[who], alone[who], &late)
			before := known
			known = map[string]difference{}
			for _, diff := range diffs {
				known[diff.what] = diff
				if b, ok := before[diff.what]; ok && diff.persists(b) {
					continue
				}
				id := explain(where, diff)
				if id == "" {
					unexplained = append(unexplained,
						fmt.Sprintf("Redisson %s, %s, %s, %s (%s):\n  %v", m.version, d, typ, s.operation, s.name, diff))
					id = "?"
				}
				row := s.operation
				if phase != "act" && ownDifference(id) {
					row = st.operation
				}
				ids[row] = append(ids[row], id)
			}
		}
	}
	play("setup", setup, s.setup)
	play("act", 0, s.act)
	play("observe", 1, fullView)
	return ids, unexplained, late.busy
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
	busy           time.Duration // the time of all calls, except waits, and of the snapshots
}

func (s slack) ms() int64 { return 5 + (s.steps + s.reading).Milliseconds() }

// step does one step on both limiters concurrently and compares them.
func (m matrix) step(t testing.TB, phase string, st step, names [2]string, together, alone side, late *slack) []difference {
	t.Helper()
	if st.pause > 0 {
		time.Sleep(st.pause)
		return nil
	}
	var answers [2]string
	var elapsed [2]time.Duration
	var both sync.WaitGroup
	for i, s := range [2]side{together, alone} {
		both.Go(func() {
			began := time.Now()
			answers[i] = s.do(st.operation, names[i], st.args...)
			elapsed[i] = time.Since(began)
			answers[i] = strings.ReplaceAll(answers[i], names[i], "NAME")
		})
	}
	both.Wait()
	text := strings.TrimSpace(fmt.Sprint(append([]any{st.operation}, st.args...)...))
	compared.Add(1)
	waits := strings.HasSuffix(strings.ToLower(st.operation), "acquire")
	if apart := (elapsed[0] - elapsed[1]).Abs(); waits {
		late.steps = max(late.steps, apart)
		late.busy += apart
	} else {
		late.steps = max(late.steps, elapsed[0], elapsed[1])
		late.busy += max(elapsed[0], elapsed[1])
	}
	reading := time.Now()
	a, b := m.snapshots(t, names)
	late.reading = time.Since(reading)
	late.busy += late.reading
	var out []difference
	differ := func(what, together, alone string) {
		out = append(out, difference{phase, text, what, together, alone, a})
	}
	if !same(st.operation, answers[0], answers[1], *late) {
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
		if !same(what, va, vb, *late) {
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
