// SPDX-License-Identifier: Apache-2.0

// Package redistest gives tests a Redis: miniredis, redis-server or valkey-server, whichever the lane of this test
// run names.
//
// A test is written once and runs in every lane:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestOneHour(t *testing.T) {
//		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
//			name := redistest.Key(t)
//			// time.Sleep(time.Hour) takes no time here
//		})
//	}
//
// [Run] is the usual choice: it has virtual time and exact waits. [Client] runs in real time. [Start] and
// [StartCluster] give a test its own servers, which it can kill, pause and restart. Nothing here ever flushes a
// database: every test uses names made by [Key], and only those are deleted.
package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The lanes, as the environment variable RATELIMITER_LANE names them.
const (
	miniLane   = "miniredis"
	redisLane  = "redis"
	valkeyLane = "valkey"
)

// A mark begins the message of a test that the function of its name has skipped. tools/test-lanes.sh fails a lane on
// a real server whose output contains needRealMark. It expects the other marks, and names every test that was skipped
// for another reason.
const (
	needRealMark = "redistest.NeedReal"
	noServerMark = "redistest.NoServer"
	noRaceMark   = "redistest.NoRace"
	repeatsMark  = "redistest.Repeats"
	sinceMark    = "redistest.Since"
)

// A mark begins the message of a failure that the function of its name has decided. tools/again.sh looks for them.
const (
	measuredMark = "redistest.Measured"
	finalMark    = "redistest.Final"
)

// Lane returns the lane of this test run, "miniredis", "redis" or "valkey", from the environment variable
// RATELIMITER_LANE. The default is "miniredis". Lane panics at any other value, so that a typing error does not pass
// as a green lane.
func Lane() string {
	switch lane := os.Getenv("RATELIMITER_LANE"); lane {
	case "", miniLane:
		return miniLane
	case redisLane, valkeyLane:
		return lane
	default:
		panic(fmt.Sprintf("redistest: RATELIMITER_LANE=%q; it is miniredis, redis or valkey", lane))
	}
}

// TTLsAreVirtual reports whether the TTLs of keys follow the bubble's time in [Run]. They do in the miniredis lane. A
// real server keeps real time, so a test that sleeps until a key is gone calls this first.
func TTLsAreVirtual() bool { return Lane() == miniLane }

// NeedReal skips t in the miniredis lane. In a real lane it fails t if the lane's server is missing, with one line
// that says what to install.
func NeedReal(t testing.TB) {
	t.Helper()
	if Lane() == miniLane {
		t.Skip(needRealMark + ": needs redis-server or valkey-server (RATELIMITER_LANE=redis or valkey)")
	}
	binary(t)
}

// NoServer skips t in the valkey lane, in short mode (go test -short), and on a redis-server without the race detector. It is for
// tests that use no server and take long: in those runs they could only repeat what the miniredis lane has shown.
func NoServer(t testing.TB) {
	t.Helper()
	if brief() || Lane() != miniLane && !UnderRace && !Long() {
		t.Skip(noServerMark + ": asks no server; the miniredis lane runs it")
	}
}

// Repeats skips t where [NoServer] does. It is for tests that take long and use a server, but show something that
// does not depend on the server: the miniredis lane and the redis lane run them, and a further lane could only repeat
// that.
func Repeats(t testing.TB) {
	t.Helper()
	if brief() {
		t.Skip(repeatsMark + ": no server decides it; the miniredis and redis lanes run it")
	}
}

// brief reports whether this run is only for what is new in its lane: a server other than redis-server, or the oldest
// Go and go-redis, whose lane sets -short.
func brief() bool { return (Lane() == valkeyLane || testing.Short()) && !Long() }

// NoRace skips t under the race detector, for the reason why. It is for tests in which nothing new can race, and
// which the detector makes many times slower. The miniredis lane runs them without it. It skips them also in short mode on
// miniredis, the run of the oldest Go and go-redis, which decide nothing in them.
func NoRace(t testing.TB, why string) {
	t.Helper()
	if testing.Short() && Lane() == miniLane && !Long() {
		t.Skip(noRaceMark + ": " + why + "; the miniredis lane runs it")
	}
	if UnderRace && !Long() {
		t.Skip(noRaceMark + ": " + why + "; it runs without the race detector")
	}
}

// Must returns a function that returns v, and that ends the test if there is an error: in one line what otherwise takes two, as
// in n := redistest.Must(l.AvailablePermits(ctx))(t).
func Must[T any](v T, err error) func(t require.TestingT) T {
	return func(t require.TestingT) T {
		if h, ok := t.(interface{ Helper() }); ok {
			h.Helper()
		}
		require.NoError(t, err)
		return v
	}
}

// Measured ends t as failed if ok is false. It is for the few checks of what can only be measured in real time on real
// servers or JVMs, such as a share or a throughput: no bound of these is safe on a machine that stalls. If nothing but
// such checks fails in a test, it is enough that the test passes once when tools/test-lanes.sh runs it again, alone.
//
// A check of correctness never goes through Measured: it has to hold on every machine. A failure by Measured does not
// count as one of measurement if t had failed before.
func Measured(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	switch text := fmt.Sprintf(format, args...); {
	case ok:
	case t.Failed():
		t.Fatal(text)
	default:
		t.Fatal(measuredMark + ": " + text)
	}
}

// hung is how many times the bound of [Prompt] only a hang takes.
const hung = 5

// Prompt ends t as failed if took is more than bound: what a user waits for at most, by the timeouts of the code. How much the
// processor adds to these only an otherwise idle machine can show, so that a run that is not [Long] allows for several times the
// bound, which only a call that hangs, or that is repeated again and again, exceeds.
func Prompt(t testing.TB, took, bound time.Duration, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	require.Less(t, took, hung*bound, text)
	Measured(t, took < bound || !Long(), "%s: it took %v", text, took)
}

// Final returns t for checks whose failure is a proof, because they are judged by what Redis itself recorded: permits
// granted beyond a rate, or lost. tools/test-lanes.sh never runs a test again that such a check has failed.
func Final(t testing.TB) testing.TB { return final{t} }

type final struct{ testing.TB }

func (f final) Errorf(format string, args ...any) {
	f.Helper()
	f.TB.Errorf(finalMark+": "+format, args...)
}

// Long reports whether this run has time for long and rare cases: the environment variable RATELIMITER_LONG is set,
// as `make test-long` does.
func Long() bool { return os.Getenv("RATELIMITER_LONG") != "" }

// Cases returns the number of cases that a test draws: short as a rule, and long if the run is [Long].
func Cases(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// binary returns the path of the lane's server program, which the environment variable RATELIMITER_SERVER may name. A
// missing one is fatal, here as in CI: a run that names a lane has to run it.
func binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("RATELIMITER_SERVER"); path != "" {
		return path
	}
	name := Lane() + "-server"
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("redistest: %s is not in PATH: install the package %s, or let `make test` do it", name, name)
	}
	return path
}
