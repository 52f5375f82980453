// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

const (
	// stallNoticed is the shortest stall that counts. The scenarios leave more time than that between a step and the
	// end of the window in which it has to happen.
	stallNoticed = 50 * time.Millisecond
	// stallLooks is how often a stallWatch looks.
	stallLooks = 25 * time.Millisecond
	// steadyAttempts is how often a scenario is played if the machine stalls each time.
	steadyAttempts = 8
)

// steadily plays a scenario whose steps have to happen in certain windows of real time. When this process, Redis or a
// JVM stalls, a step can happen after the end of its window, and then its result means nothing. So steadily records
// the stalls while it plays, and plays the scenario again if it failed and there was a stall. A failure without a
// stall is final, and so is a failure of a check by [always].
func steadily(t testing.TB, f func(t testing.TB), among ...version) {
	t.Helper()
	var watches []*stallWatch
	for _, v := range among {
		w := watchOf(fleet.peer(t, v))
		w.begin()
		defer w.end()
		watches = append(watches, w)
	}
	for left := steadyAttempts - 1; ; left-- {
		a, began := &attempt{TB: t}, time.Now()
		a.run(f)
		if !a.failed {
			return
		}
		longest := time.Duration(0)
		for _, w := range watches {
			longest = max(longest, w.longest(began, time.Now()))
		}
		if longest < stallNoticed || left == 0 || a.final {
			report := t
			if a.final {
				report = redistest.Final(t)
			}
			for _, text := range a.texts {
				report.Errorf("%s", text)
			}
			t.Errorf("the longest stall meanwhile was %v", longest)
			t.FailNow()
		}
		t.Logf("the machine stalled for %v, so this is played again: %s", longest, a.texts)
	}
}

// always returns a TB for a check that holds however long the machine stalls. Its failure is final, also if t belongs
// to a scenario that is played by steadily.
func always(t testing.TB) testing.TB {
	if a, ok := t.(*attempt); ok {
		return final{a}
	}
	return redistest.Final(t)
}

// An attempt is a TB that keeps the failures of one playing of a scenario.
type attempt struct {
	testing.TB
	mu            sync.Mutex
	texts         []string
	failed, final bool
}

// run runs f in a goroutine of its own, which FailNow can end.
func (a *attempt) run(f func(t testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(a)
	}()
	<-done
	a.mu.Lock() // a goroutine that f left behind may still report something
	defer a.mu.Unlock()
}

func (a *attempt) fail(final bool, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed, a.final = true, a.final || final
	if text != "" {
		a.texts = append(a.texts, text)
	}
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Fail()                             { a.fail(false, "") }
func (a *attempt) FailNow()                          { a.fail(false, ""); runtime.Goexit() }
func (a *attempt) Error(args ...any)                 { a.fail(false, fmt.Sprint(args...)) }
func (a *attempt) Errorf(format string, args ...any) { a.fail(false, fmt.Sprintf(format, args...)) }
func (a *attempt) Fatal(args ...any)                 { a.Error(args...); a.FailNow() }
func (a *attempt) Fatalf(format string, args ...any) { a.Errorf(format, args...); a.FailNow() }

// A final is an attempt whose failures are final.
type final struct{ *attempt }

func (f final) Errorf(format string, args ...any) { f.fail(true, fmt.Sprintf(format, args...)) }

// A stallWatch notices when a part of what a scenario beside one JVM needs stands still: this process, the JVM or
// Redis. It asks the JVM for something that the JVM has to ask Redis for, again and again, and records by how much a
// reply was late.
type stallWatch struct {
	peer *peer

	mu      sync.Mutex
	users   int
	running bool
	looked  time.Time // when the last look began that has ended
	stalls  []stallSeen
}

type stallSeen struct {
	from, to time.Time
	late     time.Duration
}

var stallWatches sync.Map // *stallWatch by *peer

func watchOf(p *peer) *stallWatch {
	w, _ := stallWatches.LoadOrStore(p, &stallWatch{peer: p})
	return w.(*stallWatch)
}

func (w *stallWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users++; !w.running {
		w.running, w.looked = true, time.Time{}
		go w.watch()
	}
}

func (w *stallWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users--
}

func (w *stallWatch) watch() {
	for {
		from := time.Now()
		time.Sleep(stallLooks)
		_, _ = w.peer.call("isExists", "a name that nobody uses")
		to := time.Now()
		w.mu.Lock()
		if late := to.Sub(from) - stallLooks; late >= stallNoticed {
			w.stalls = append(w.stalls, stallSeen{from, to, late})
		}
		w.looked = from
		if w.peer.ended() {
			w.looked = to.Add(time.Hour) // there is nothing more to see
		}
		w.running = w.users > 0 && !w.peer.ended()
		running := w.running
		w.mu.Unlock()
		if !running {
			return
		}
	}
}

// longest returns the longest stall between two instants. It waits for a look that began after the second.
func (w *stallWatch) longest(from, to time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end := time.Now().Add(2 * callLimit); !w.looked.After(to) && time.Now().Before(end); w.mu.Lock() {
		w.mu.Unlock()
		time.Sleep(2 * time.Millisecond)
	}
	for _, s := range w.stalls {
		if s.to.After(from) && s.from.Before(to) {
			longest = max(longest, s.late)
		}
	}
	return longest
}

// TestSteadily checks that a failure counts unless the machine stalled, and that one by always counts in any case.
func TestSteadily(t *testing.T) {
	java := fleet.peer(t, newestListed())
	_, _ = java.call("isExists", "a name that nobody uses") // the first one takes longer
	play := func(f func(t testing.TB, turn int)) (turns int, failures []string) {
		outer := &attempt{TB: t}
		outer.run(func(t testing.TB) {
			steadily(t, func(t testing.TB) {
				turns++
				f(t, turns)
			}, java.version)
		})
		return turns, outer.texts
	}
	stalled := func() { // the machine may stall on its own, which only makes this longer
		w := watchOf(java)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stalls = append(w.stalls, stallSeen{time.Now(), time.Now(), time.Hour})
	}
	turns, failures := play(func(t testing.TB, turn int) {
		if turn < 3 {
			stalled()
			require.Fail(t, "a window was over")
		}
	})
	require.Equal(t, 3, turns)
	require.Empty(t, failures)

	turns, failures = play(func(t testing.TB, turn int) {
		stalled()
		require.Fail(always(t), "a window was exceeded")
	})
	require.Equal(t, 1, turns)
	require.Len(t, failures, 2)
	require.Contains(t, failures[0], "a window was exceeded")

	turns, failures = play(func(t testing.TB, turn int) {
		stalled()
		t.Error("each time")
	})
	require.Equal(t, steadyAttempts, turns)
	require.Equal(t, []string{"each time", "the longest stall meanwhile was 1h0m0s"}, failures)

	turns, failures = play(func(t testing.TB, turn int) { t.Fatal("without a stall") })
	require.Len(t, failures, 2)
	require.Contains(t, failures[0], "without a stall")
	if turns > 1 {
		t.Log("this machine stalls")
	}
}
