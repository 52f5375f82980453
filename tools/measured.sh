# shellcheck shell=bash
# Runs tests again that failed because of a measurement only; see
# redistest.Measured. tools/test-lanes.sh sources this file. $work is its
# directory of temporary files. There a lane keeps LANE.json, what
# its tests printed; LANE.closed, its counts; LANE.measured, the tests that may
# be run again; and LANE.again, the command for that.

# measured FILE prints "PACKAGE TEST" for each test at the top level in which
# nothing failed but checks by redistest.Measured. A subtest that fails makes
# its parents fail, so a test whose subtest failed is not looked at itself.
measured() {
    awk '!match($0, /"Package":"[^"]*","Test":"[^"]*"/) { next }
        { split(substr($0, RSTART, RLENGTH), part, "\""); test = part[4] " " part[8] }
        /"Action":"fail"/ { failed[test] }
        /"Action":"output"/ && /redistest\.Measured: / { missed[test] }
        /"Action":"output"/ && /DATA RACE|race detected during execution|"Output":"panic: / { other[test] }
        END {
            for (test in failed)
                for (parent = test; sub(/\/[^\/ ]*$/, "", parent) && parent ~ / /;) parents[parent]
            for (test in failed) {
                package = name = test
                sub(/ .*/, "", package)
                sub(/.* /, "", name)
                sub(/\/.*/, "", name)
                tops[package " " name]
                if (test in other || !(test in parents) && !(test in missed)) wrong[package " " name]
            }
            for (top in tops) if (!(top in wrong)) print top
        }' "$1" | sort
}

# again LANE DIR WORD... keeps the command that runs a test of LANE again, but for its name and package.
again() { printf '%q ' in_module "$2" env "${@:3}" >"$work/$1.again"; }

# measure_again LANE... runs the measured tests of these lanes again, one after
# another. If one passes, its failure no longer counts. More than three are
# no chance, so then all of them stay failed.
measure_again() {
    local lane package test events count p f s
    count=$(for lane in "$@"; do cat "$work/$lane.measured" 2>/dev/null; done | wc -l)
    [ "$count" -gt 0 ] || return 0
    echo
    if [ "$count" -gt 3 ]; then
        echo "$count tests failed by a measurement; these are too many to measure again:"
        for lane in "$@"; do cat "$work/$lane.measured" 2>/dev/null; done
        return
    fi
    for lane in "$@"; do
        [ -s "$work/$lane.measured" ] || continue
        while read -r package test; do
            events="\"Package\":\"$package\",\"Test\":\"$test[\"/]"
            echo "measured beside the other lanes: $lane: $test FAILED:"
            grep "$events" "$work/$lane.json" | grep -o 'redistest\.Measured: .*' | sed 's/\\n"}$//'
            if eval "$(cat "$work/$lane.again") -run '^$test\$' $package" </dev/null >"$work/again.out" 2>&1; then
                echo "measured again, alone: $lane: $test passed"
                read -r p f s <"$work/$lane.closed"
                count=$(grep "$events" "$work/$lane.json" | grep -c '"Action":"fail"')
                close "$lane" $((p + count)) $((f - count)) "$s"
            else
                cat "$work/again.out"
                echo "measured again, alone: $lane: $test FAILED"
            fi
        done <"$work/$lane.measured"
    done
}
