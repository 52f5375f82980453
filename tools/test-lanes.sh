#!/usr/bin/env bash
# Runs every test: `make test`, or tools/test-lanes.sh LANE... for some lanes
# only. A lane is one run of one module's tests against one kind of server.
# The closing lines count what ran, lane by lane. Exits non-zero when anything
# failed, and under CI=true when a lane could not run.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
path=github.com/goredisson/ratelimiter
wanted=" $* "
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p coverage

closing=() passed=0 failed=0 skipped=0 broken=0

# tool NAME prints the path of a program that tools/go.mod pins, built into
# Go's cache. A workspace does not go with -modfile.
tool() { GOWORK=off go tool -modfile="$root/tools/go.mod" -n "$1"; }

close() { # close NAME PASSED FAILED SKIPPED
    closing+=("$1: $2 passed, $3 failed, $4 skipped")
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    [ "$3" -eq 0 ] || broken=1
}

not_run() { # not_run NAME REASON
    closing+=("$1: NOT RUN ($2)")
    [ "${CI:-}" != true ] || broken=1
}

chosen() { [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]]; }

# The checks that are no tests.
checks_ok=0 checks_bad=0
check() { # check NAME COMMAND...
    echo "== $1"
    shift
    if "$@"; then checks_ok=$((checks_ok + 1)); else checks_bad=$((checks_bad + 1)); fi
}
formatted() { # gofmt lists the files it would change and exits 0
    local files
    files=$(gofmt -l .) || return 1
    [ -z "$files" ] || { echo "gofmt -w is needed for:"; echo "$files"; return 1; }
}
in_module() { (cd "$1" && shift && "$@"); } # in_module DIR COMMAND...

count() { # count ACTION FILE: the tests, subtests included, that ended so
    grep -c "\"Action\":\"$1\".*\"Test\":" "$2"
}

# lane NAME DIR PACKAGES VARIABLE=VALUE...: the tests of the module in DIR and of the further PACKAGES, words of one argument.
lane() {
    local name=$1 dir=$2 json="$work/$1.json" profile="$root/coverage/$1.out" status cover=() hide=() p f s more
    read -ra more <<<"$3"
    shift 3
    chosen "$name" || return 0
    echo "== $name"
    case $name in unit | redis) # what the library's own packages are covered to
        packages=$(go list ./... 2>/dev/null | grep -v -e /internal/redistest -e /internal/dinggate | paste -sd, -)
        [ -z "$packages" ] || cover=(-covermode=atomic -coverpkg="$packages" -coverprofile="$profile")
        ;;
    esac
    # Every real-server test is skipped on miniredis; a skip elsewhere is news.
    [ "$name" != unit ] || hide=(--hide-summary=skipped)
    : >"$json"
    in_module "$dir" env "$@" "$gotestsum" --format pkgname --format-hide-empty-pkg --jsonfile "$json" ${hide[@]+"${hide[@]}"} -- \
        ${race[@]+"${race[@]}"} -shuffle=on -count=1 -timeout=8m ${cover[@]+"${cover[@]}"} ./... ${more[@]+"${more[@]}"}
    status=$?
    p=$(count pass "$json") f=$(count fail "$json") s=$(count skip "$json")
    if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1 # a package that does not build, a panic, a timeout
    fi
    if [ $((p + f)) -eq 0 ]; then
        echo "$name: no test ran"
        f=1
    fi
    case " $* " in *=redis\ * | *=valkey\ *)
        if grep -q 'redistest\.NeedReal: ' "$json"; then
            echo "$name: a test that needs a real server was skipped"
            f=$((f + 1))
        fi
        ;;
    esac
    if [ ${#cover[@]} -gt 0 ] && [ -s "$profile" ]; then
        echo "$name: coverage $(go tool cover -func="$profile" | awk 'END { print $NF }')"
    fi
    close "$name" "$p" "$f" "$s"
}

# programs are the tests of the modules that users run, beside those of the root module.
programs="$path/cmd/rrl/... $path/examples/..."

# server_lane NAME: the root module and the programs against NAME-server, started by the tests.
server_lane() {
    chosen "$1" || return 0
    if command -v "$1-server" >/dev/null; then
        # Valkey runs what the other lanes have run under the race detector, and without it what takes long in full.
        local race=(${race[@]+"${race[@]}"})
        [ "$1" != valkey ] || race=()
        lane "$1" . "$programs" RATELIMITER_LANE="$1"
    else
        not_run "$1" "install $1-server"
    fi
}

servers=()
chosen redis || chosen compat || chosen bench && servers+=(redis-server)
chosen valkey && servers+=(valkey-server)
[ ${#servers[@]} -eq 0 ] || tools/install-servers.sh "${servers[@]}"

race=(-race)
if [ "$(go env CGO_ENABLED)" != 1 ]; then
    race=()
    not_run race "install a C compiler, gcc or clang: the race detector needs it"
fi

gotestsum=$(tool gotestsum) || { echo "gotestsum does not build"; exit 1; }

modules=("$path"/{benchmarks,cmd/rrl,compat_test,examples}/...)
# alone compiles each module, its tests too, as one who has that module only: by its own go.mod, without go.work.
alone() {
    local file
    for file in go.mod benchmarks/go.mod cmd/rrl/go.mod compat_test/go.mod examples/go.mod; do
        in_module "$(dirname "$file")" env GOWORK=off go vet ./... || { echo "in $file, with GOWORK=off"; return 1; }
    done
}
if chosen checks; then
    check gofmt formatted
    check vet in_module . go vet ./... "${modules[@]}"
    check "modules, each alone" alone
    if staticcheck=$(tool staticcheck); then
        check staticcheck in_module . "$staticcheck" ./... "${modules[@]}"
    else
        checks_bad=$((checks_bad + 1))
    fi
    close checks "$checks_ok" "$checks_bad" 0
fi

lane unit . "$programs" RATELIMITER_LANE=miniredis
server_lane redis
server_lane valkey

# The harness of the benchmarks: that it measures what was done. It measures nothing here.
if chosen bench; then
    if ! command -v redis-server >/dev/null; then
        not_run bench "install redis-server"
    elif benchmarks/prepare.sh; then
        lane bench benchmarks "" RATELIMITER_LANE=redis
    else
        not_run bench "install openjdk-17-jdk-headless and maven"
    fi
fi

# Real Redisson, of many versions, beside us on one redis-server.
if chosen compat; then
    if ! command -v redis-server >/dev/null; then
        not_run compat "install redis-server"
    elif compat_test/prepare.sh && [ -s compat_test/java/target/classpath/newest ]; then
        rm -f compat_test/java/target/newest-differs
        lane compat compat_test "" RATELIMITER_LANE=redis
        if [ -s compat_test/java/target/newest-differs ]; then
            echo "compat: THE NEWEST REDISSON DIFFERS (this does not fail the lane):"
            cat compat_test/java/target/newest-differs
        fi
    else
        not_run compat "install openjdk-17-jdk-headless and maven"
    fi
fi

echo
printf '%s\n' ${closing[@]+"${closing[@]}"}
echo "$passed passed, $failed failed, $skipped skipped"
if [ ${#closing[@]} -eq 0 ]; then
    echo "there is no such lane; the lanes are checks unit redis valkey bench compat"
    broken=1
fi
exit "$broken"
