#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prepares the Java side of the benchmarks: compat_test/prepare.sh installs JDK and Maven where it may
# and leaves the class path of each Redisson; then the program in java/ is compiled. Quick, and without
# network, when everything is there.
set -euo pipefail
cd "$(dirname "$0")"

CI=true ../compat_test/prepare.sh # CI=true: no Java is an error, not a line on stderr

cd java
if [ ! -f target/compiled ] || [ -n "$(find pom.xml src -newer target/compiled -print -quit)" ]; then
	mvn=(mvn -q -B -Dstyle.color=never)
	"${mvn[@]}" -o compile >/dev/null 2>&1 || "${mvn[@]}" compile
	touch target/compiled
fi
