#!/usr/bin/env bash
# Tests tools/measured.sh on a module of its own, whose tests fail in all the
# ways that matter. Each passes when it is run again, except the one that says
# so: so a test that is run although it must not be would pass.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tools/measured.sh
in_module() { (cd "$1" && shift && "$@"); }
close() { echo "$2 $3 $4" >"$work/$1.closed"; }

mkdir "$work/module"
cat >"$work/module/go.mod" <<'end'
module example.com/measured

go 1.25
end
cat >"$work/module/measured_test.go" <<'end'
package measured

import (
	"os"
	"testing"
)

func first() bool { return os.Getenv("TURN") == "" }

func measured(t *testing.T) {
	if first() {
		t.Fatal("redistest.Measured: 3 %, less than 10 %")
	}
}

func wrong(t *testing.T) {
	if first() {
		t.Fatal("a window held too much")
	}
}

func TestPasses(t *testing.T)   {}
func TestMeasured(t *testing.T) { measured(t) }
func TestMeasuredBelow(t *testing.T) {
	t.Run("a", func(t *testing.T) { t.Run("b", measured) })
	t.Run("c", func(t *testing.T) {})
}
func TestMeasuredTwice(t *testing.T) { t.Fatal("redistest.Measured: never more") }
func TestWrong(t *testing.T)         { wrong(t) }
func TestRace(t *testing.T) {
	if first() {
		t.Log("race detected during execution of test")
	}
	measured(t)
}
func TestWrongBelow(t *testing.T) {
	t.Run("a", measured)
	t.Run("b", wrong)
}
end

# lane LANE RUN: the tests that match RUN.
lane() {
    (cd "$work/module" && GOWORK=off go test -json -count=1 -run "$2" . >"$work/$1.json" 2>&1)
    close "$1" "$(grep -c '"Action":"pass".*"Test":' "$work/$1.json")" "$(grep -c '"Action":"fail".*"Test":' "$work/$1.json")" 0
    measured "$work/$1.json" >"$work/$1.measured"
    again "$1" "$work/module" GOWORK=off TURN=second go test -count=1
}

failed=0
expect() { # expect WHAT WANT GOT
    [ "$2" = "$3" ] || { printf '%s: want\n%s\ngot\n%s\n' "$1" "$2" "$3"; failed=1; }
}

m=example.com/measured
lane all .
expect "may be run again" "$m TestMeasured
$m TestMeasuredBelow
$m TestMeasuredTwice" "$(cat "$work/all.measured")"
expect "the first time" "2 10 0" "$(cat "$work/all.closed")"
out=$(measure_again all)
expect "after the second time" "6 6 0" "$(cat "$work/all.closed")"
expect "what it prints" "
measured beside the other lanes: all: TestMeasured FAILED:
redistest.Measured: 3 %, less than 10 %
measured again, alone: all: TestMeasured passed
measured beside the other lanes: all: TestMeasuredBelow FAILED:
redistest.Measured: 3 %, less than 10 %
measured again, alone: all: TestMeasuredBelow passed
measured beside the other lanes: all: TestMeasuredTwice FAILED:
redistest.Measured: never more
measured again, alone: all: TestMeasuredTwice FAILED" "$(grep -e '^$' -e '^measured' -e '^redistest' <<<"$out")"

lane one 'TestMeasured$'
lane three .
out=$(measure_again one three)
expect "four are too many" "0 1 0 2 10 0" "$(cat "$work/one.closed" "$work/three.closed" | paste -sd' ')"
expect "and it says so" 1 "$(grep -c 'too many to measure again' <<<"$out")"
exit "$failed"
