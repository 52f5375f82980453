#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adds the line of the licence to each Go, Lua and shell file that lacks it; with
# --check it only names these files, and fails if there are any.
set -eu
cd "$(dirname "$0")/.."
line="SPDX-License-Identifier: Apache-2.0"
missing=$(git ls-files --cached --others --exclude-standard '*.go' '*.lua' '*.sh' | grep -v testdata/ | xargs -r grep -L -m1 "$line" -- || true)
[ -n "$missing" ] || exit 0
if [ "${1:-}" = --check ]; then
    echo "make tidy adds \"$line\" to:"
    echo "$missing"
    exit 1
fi
for file in $missing; do
    case $file in
    *.go) sed -i "1i // $line\n" "$file" ;;
    *.lua) sed -i "1i -- $line" "$file" ;;
    *.sh) sed -i "1a # $line" "$file" ;;
    esac
done
