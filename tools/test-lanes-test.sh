#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests what tools/test-lanes.sh does with lanes that cannot run: with a PATH
# that has all programs but those that such lanes need, and those that could
# install them.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# without NAME...: a directory of all programs but these.
without() {
    local dir program
    rm -rf "$work/bin"
    mkdir "$work/bin"
    IFS=: read -ra dirs <<<"$PATH"
    for dir in "${dirs[@]}"; do
        for program in "$dir"/*; do
            [[ " $* apt-get sudo " == *" ${program##*/} "* ]] || [ ! -x "$program" ] || [ -e "$work/bin/${program##*/}" ] || ln -s "$program" "$work/bin/"
        done
    done
}

failed=0
fails() { # fails LINE LANE...: the lanes exit with 1, and say so
    local line=$1 out status
    shift
    out=$(env -u CI -u RATELIMITER_LONG PATH="$work/bin" tools/test-lanes.sh "$@" 2>&1)
    status=$?
    if [ "$status" -ne 1 ] || ! grep -qF "$line" <<<"$out"; then
        printf '%s: want exit code 1 and\n%s\ngot %s and\n%s\n' "$*" "$line" "$status" "$out"
        failed=1
    fi
}

without redis-server
fails "redis: NOT RUN (install redis-server)" redis
fails "compat: NOT RUN (install redis-server)" compat
fails "page: NOT RUN (install redis-server)" page redis
without valkey-server
fails "valkey: NOT RUN (install valkey-server)" valkey
exit "$failed"
