// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
			for _, s := range scenarios {
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
	if (lacks || s.ours) && d == javaToGo {
		return map[string][]string{s.operation: {absent}}, nil, 0
	}
	// Before 3.22.1 setRate does not know a client's own permits, so it cannot serve as a reference for ours.
	lacks = lacks || d == goToJava && typ == "PER_CLIENT" && s.operation == "setRate" && !m.version.since("3.22.1")
	number := limiters.Add(1)
	p := &play{
		matrix: m, where: where{version: m.version, scenario: s, direction: d, typ: typ, lacks: lacks},
		names: [2]string{fmt.Sprintf("%s%d.a", m.prefix, number), fmt.Sprintf("%s%d.b", m.prefix, number)},
		ids:   map[string][]string{s.operation: {equal}},
	}
	p.together, p.alone = m.sides(t, d, lacks)
	setup := 1 // the observer also makes the state, where it can
	if lacks {
		setup = 0
	}
	p.steps(t, "setup", setup, s.setup)
	p.steps(t, "act", 0, s.act)
	p.steps(t, "observe", 1, fullView)
	if d == javaToGo && s.operation == "release" {
		p.ids[s.operation] = append(p.ids[s.operation], "4") // a matter of chance: it shows if a call of the setup has checked, as one in 64 does
	}
	return p.ids, p.unexplained, p.late.busy
}

// sides returns who acts, and who observes, on each of the two limiters.
func (m matrix) sides(t testing.TB, d direction, lacks bool) (together, alone [2]side) {
	t.Helper()
	java := javaSide{m.java}
	if lacks {
		// Go acts where this version cannot, and the version observes. On the other limiter the newest version acts
		// alone.
		return [2]side{newGoSide(t, m.rdb, m.version, m.newest.id), java}, [2]side{javaSide{m.newest}, java}
	}
	goes := newGoSide(t, m.rdb, m.version, m.java.id)
	if d == goToJava {
		return [2]side{goes, java}, [2]side{java, java}
	}
	return [2]side{java, goes}, [2]side{java, java}
}
