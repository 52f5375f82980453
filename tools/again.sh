# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Runs tests again that failed beside the other lanes. tools/test-lanes.sh
# sources this file. $work is its directory of temporary files. There a lane
# keeps LANE.json, what its tests printed; LANE.closed, its counts;
# LANE.repeatable, the tests that may be run again; and LANE.again, the command
# for that.

repeat_most=6   # tests of a run; if more fail, it is not the machine
repeat_times=3  # all of them have to pass, but one is enough for a measurement

# repeatable FILE prints "PACKAGE TEST TIMES" for each test at the top level
# that failed and may be run again. TIMES is 1 if nothing failed in it but
# checks by redistest.Measured. A subtest that fails makes its parents fail, so
# a test whose subtest failed is not looked at itself. A data race, a panic, a
# case that a property has drawn and a check by redistest.Final are final.
repeatable() {
    awk -v times="$repeat_times" '!match($0, /"Package":"[^"]*","Test":"[^"]*"/) { next }
        { split(substr($0, RSTART, RLENGTH), part, "\""); test = part[4] " " part[8] }
        /"Action":"fail"/ { failed[test] }
        /"Action":"output"/ && /redistest\.Measured: / { missed[test] }
        /"Action":"output"/ && /redistest\.Final: |\[rapid\] failed|\[rapid\] panic|DATA RACE|race detected during execution|"Output":"panic: / { final[test] }
        function top(test) { sub(/\/.*/, "", test); return test } # of what follows the package
        END {
            for (test in failed)
                for (parent = test; sub(/\/[^\/ ]*$/, "", parent) && parent ~ / /;) parents[parent]
            for (test in failed) {
                package = name = test
                sub(/ .*/, "", package)
                sub(/.* /, "", name)
                whole = package " " top(name)
                tops[whole]
                if (!(test in parents) && !(test in missed)) wrong[whole]
            }
            for (test in final) {
                package = name = test
                sub(/ .*/, "", package)
                sub(/.* /, "", name)
                ended[package " " top(name)]
            }
            for (whole in tops) if (!(whole in ended)) print whole, whole in wrong ? times : 1
        }' "$1" | sort
}

# again LANE DIR WORD... keeps the command that runs a test of LANE again, but for its name and package.
again() { printf '%q ' in_module "$2" env "${@:3}" >"$work/$1.again"; }

# run_again LANE... runs the repeatable tests of these lanes again, one after
# another, alone. If one passes, its failure no longer counts.
run_again() {
    local lane package test times events count p f s
    count=$(for lane in "$@"; do cat "$work/$lane.repeatable" 2>/dev/null; done | wc -l)
    [ "$count" -gt 0 ] || return 0
    echo
    if [ "$count" -gt "$repeat_most" ]; then
        echo "$count tests failed; these are too many to run again:"
        for lane in "$@"; do cat "$work/$lane.repeatable" 2>/dev/null; done
        return
    fi
    for lane in "$@"; do
        [ -s "$work/$lane.repeatable" ] || continue
        while read -r package test times; do
            events="\"Package\":\"$package\",\"Test\":\"$test[\"/]"
            echo "beside the other lanes: $lane: $test FAILED"
            grep "$events" "$work/$lane.json" | grep -o 'redistest\.Measured: .*' | sed 's/\\n"}$//'
            if eval "$(cat "$work/$lane.again") -count=$times -run '^$test\$' $package" </dev/null >"$work/again.out" 2>&1; then
                echo "alone, run $times times: $lane: $test passed"
                read -r p f s <"$work/$lane.closed"
                count=$(grep "$events" "$work/$lane.json" | grep -c '"Action":"fail"')
                close "$lane" $((p + count)) $((f - count)) "$s"
            else
                cat "$work/again.out"
                echo "alone, run $times times: $lane: $test FAILED"
            fi
        done <"$work/$lane.repeatable"
    done
}
