#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target of the root module and of cmd/rrl for FUZZTIME each (60s): `make fuzz`.
set -eu
cd "$(dirname "$0")/.."
for package in $(go list ./... github.com/goredisson/ratelimiter/cmd/rrl/...); do
    for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
        echo "== $package $target"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-60s}" "$package"
    done
done
