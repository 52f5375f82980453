#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests tools/again.sh on a module of its own, whose tests fail in all the ways
# that matter. Each passes when it is run again, except those that say so: so a
# test that is run although it must not be would pass.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. tools/again.sh
in_module() { (cd "$1" && shift && "$@"); }
close() { echo "$2 $3 $4" >"$work/$1.closed"; }

mkdir "$work/module"
cat >"$work/module/go.mod" <<'end'
module example.com/again

go 1.25
end
cat >"$work/module/again_test.go" <<'end'
package again

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

func late(t *testing.T) {
	if first() {
		t.Fatal("not yet")
	}
}

func says(text string) func(t *testing.T) {
	return func(t *testing.T) {
		if first() {
			t.Fatal(text)
		}
	}
}

func TestPasses(t *testing.T)   {}
func TestMeasured(t *testing.T) { measured(t) }
func TestMeasuredBelow(t *testing.T) {
	t.Run("a", func(t *testing.T) { t.Run("b", measured) })
	t.Run("c", func(t *testing.T) {})
}
func TestMeasuredTwice(t *testing.T) { t.Fatal("redistest.Measured: never more") }
func TestLate(t *testing.T)          { late(t) }
func TestLateBelow(t *testing.T) {
	t.Run("a", measured)
	t.Run("b", late)
}

var runs int

func TestLateAtTimes(t *testing.T) {
	if runs++; first() || runs == 2 {
		t.Fatal("the second time again")
	}
}

func TestRaceFinal(t *testing.T)  { says("race detected during execution of test")(t) }
func TestDrawnFinal(t *testing.T) { says("[rapid] failed after 3 tests")(t) }
func TestProvenFinal(t *testing.T) {
	t.Run("a", measured)
	t.Run("b", says("redistest.Final: 6 of 5"))
}
end

# lane LANE RUN: the tests that match RUN.
lane() {
    (cd "$work/module" && GOWORK=off go test -json -count=1 -run "$2" . >"$work/$1.json" 2>&1)
    close "$1" "$(grep -c '"Action":"pass".*"Test":' "$work/$1.json")" "$(grep -c '"Action":"fail".*"Test":' "$work/$1.json")" 0
    repeatable "$work/$1.json" >"$work/$1.repeatable"
    again "$1" "$work/module" GOWORK=off TURN=second go test
}

failed=0
expect() { # expect WHAT WANT GOT
    [ "$2" = "$3" ] || { printf '%s: want\n%s\ngot\n%s\n' "$1" "$2" "$3"; failed=1; }
}

m=example.com/again
lane all .
expect "may be run again" "$m TestLate 3
$m TestLateAtTimes 3
$m TestLateBelow 3
$m TestMeasured 1
$m TestMeasuredBelow 1
$m TestMeasuredTwice 1" "$(cat "$work/all.repeatable")"
expect "the first time" "2 15 0" "$(cat "$work/all.closed")"
out=$(run_again all)
expect "after the second time" "10 7 0" "$(cat "$work/all.closed")"
expect "what it prints" "
beside the other lanes: all: TestLate FAILED
alone, run 3 times: all: TestLate passed
beside the other lanes: all: TestLateAtTimes FAILED
alone, run 3 times: all: TestLateAtTimes FAILED
beside the other lanes: all: TestLateBelow FAILED
redistest.Measured: 3 %, less than 10 %
alone, run 3 times: all: TestLateBelow passed
beside the other lanes: all: TestMeasured FAILED
redistest.Measured: 3 %, less than 10 %
alone, run 1 times: all: TestMeasured passed
beside the other lanes: all: TestMeasuredBelow FAILED
redistest.Measured: 3 %, less than 10 %
alone, run 1 times: all: TestMeasuredBelow passed
beside the other lanes: all: TestMeasuredTwice FAILED
redistest.Measured: never more
alone, run 1 times: all: TestMeasuredTwice FAILED" "$(grep -e '^$' -e '^beside' -e '^alone' -e '^redistest' <<<"$out")"

lane one 'TestMeasured$'
lane six .
out=$(run_again one six)
expect "seven are too many" "0 1 0 2 15 0" "$(cat "$work/one.closed" "$work/six.closed" | paste -sd' ')"
expect "and it says so" 1 "$(grep -c 'too many to run again' <<<"$out")"
exit "$failed"
