#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the faults of faults_test, one row after another, on servers that it starts, and prints the table of what
# was promised and what was measured: `make test-faults`. It exits non-zero when a promise was broken, or when a
# row could not run. RATELIMITER_FAULTS_REPORT=write (`make faults-report`) writes the table into
# docs/reliability.md. Arguments select rows: tools/test-faults.sh sentinel 'clock,_-5_s'.
set -u
cd "$(dirname "$0")/.." || exit 1
server=${RATELIMITER_LANE:-redis}-server
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
begun=$SECONDS

tools/install-servers.sh "$server"
missing=()
command -v "$server" >/dev/null || missing+=("$server")
[ "$(go env CGO_ENABLED)" = 1 ] && command -v cc >/dev/null || missing+=("a C compiler, gcc or clang: the race detector and the clock of Redis need it")
[ "$(uname)" = Linux ] || missing+=("Linux: the clock of Redis is set by LD_PRELOAD")
if [ ${#missing[@]} -gt 0 ]; then
    printf 'faults: NOT RUN (install %s)\n' "${missing[@]}"
    exit 1
fi

select=TestFaults
[ $# -eq 0 ] || select="TestFaults/($(IFS='|' && echo "$*"))"
(cd faults_test && RATELIMITER_FAULTS_TABLE="$work/table" go test -race -count=1 -timeout 30m -v -run "$select" .) >"$work/log" 2>&1 &
test=$!
tail --pid="$test" -n +1 -F "$work/log" 2>/dev/null | grep --line-buffered -E '^ +--- |^=== RUN +TestFaults/'
wait "$test"
status=$?

count() { grep -cE "^ +--- $1: TestFaults/" "$work/log"; }
passed=$(count PASS) failed=$(count FAIL) skipped=$(count SKIP)
if [ "$status" -ne 0 ]; then
    echo
    grep -vE '^=== ' "$work/log"
fi
echo
cat "$work/table" 2>/dev/null
echo
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1 # it does not build, a timeout, or the promises changed
[ $((passed + failed)) -gt 0 ] || { echo "faults: no row ran"; failed=1; }
echo "faults: $passed passed, $failed failed, $skipped not run, in $((SECONDS - begun)) s"
[ "$status" -eq 0 ] && [ "$failed" -eq 0 ] && [ "$skipped" -eq 0 ]
