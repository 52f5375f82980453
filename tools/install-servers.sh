#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the named packages (redis-server, lua5.4, chromium) if the program of
# that name is missing, on Debian and its derivatives, as root or with a sudo
# that needs no password. A package that the release lacks comes from Debian's
# backports. On other systems it does nothing, and test-lanes.sh says what to
# install. It always exits 0; callers check whether the program is there.
set -u

missing=()
for package in "$@"; do
    command -v "$package" >/dev/null || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
command -v apt-get >/dev/null || exit 0

if [ "$(id -u)" = 0 ]; then
    root=(env)
elif sudo -n true 2>/dev/null; then
    root=(sudo -n)
else
    exit 0
fi

work=$(mktemp -d) || exit 1
policy=/usr/sbin/policy-rc.d
made_policy=
cleanup() {
    [ -z "$made_policy" ] || "${root[@]}" rm -f "$policy"
    rm -rf "$work"
}
trap cleanup EXIT
chmod 755 "$work" # apt reads it as its own user

# The tests start servers of their own, so the package must not start one.
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$work/policy"
    "${root[@]}" install -m 755 "$work/policy" "$policy" && made_policy=1
fi

apt() { # apt COMMAND ARGUMENT...: quiet unless it fails
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@" >"$work/log" 2>&1
}

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
distribution=$(. /etc/os-release && echo "${ID:-}")

# backports writes a copy of this machine's sources with the backports of its
# release added, in a folder of its own, so that none is left on the machine.
# Mirror and key are those of the machine's own entry.
backports() {
    mkdir -p "$work/sources"
    cp /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list "$work/sources/" 2>/dev/null
    cp /etc/apt/sources.list "$work/sources/main.list" 2>/dev/null
    # Stanzas (deb822) that name the release: keep, with another Suites line.
    for file in "$work"/sources/*.sources; do
        [ -e "$file" ] || continue
        awk -v RS= -v ORS='\n\n' -v code="$codename" '
            $0 ~ "(^|\n)Suites:([^\n]* )?" code "( |\n|$)" {
                sub("Suites:[^\n]*", "Suites: " code "-backports"); print
            }' "$file"
    done >"$work/backports.sources"
    # One-line entries: "deb [options] URI suite components".
    for file in "$work"/sources/*.list; do
        [ -e "$file" ] || continue
        sed -n -E "s/^(deb +(\[[^]]*\] +)?[^ ]+ +)$codename +/\1$codename-backports /p" "$file"
    done >"$work/backports.list"
    mv "$work/backports.sources" "$work/backports.list" "$work/sources/"
}

for package in "${missing[@]}"; do
    echo "installing $package"
    apt install --no-install-recommends "$package" && continue
    apt update && apt install --no-install-recommends "$package" && continue
    if [ "$distribution" = debian ] && [ -n "$codename" ]; then
        backports
        from=(-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/sources")
        apt "${from[@]}" update &&
            apt "${from[@]}" install --no-install-recommends -t "$codename-backports" "$package" && continue
    fi
    echo "could not install $package:"
    tail -n 5 "$work/log"
done
exit 0
