#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prepares the Java side of compat_test: JDK 17 and Maven (installed by apt on Debian when
# missing), the compiled peers, and a class path for each Redisson of the matrix and each Guava.
#
#   prepare.sh            all of it; quick when everything is there, and then without network
#   prepare.sh --newest   asks again which 4.x is the newest (otherwise once a day)
#
# Leaves java/target/classes and java/target/classpath/VERSION, with "newest" among the
# versions, and the same of Guava in java/guava/target. Class paths are also kept in
# RATELIMITER_COMPAT_CACHE, by default ~/.cache/ratelimiter-compat, so that a fresh clone is quick too;
# jars live in Maven's own repository. Without Java: exit code 1 when CI=true, otherwise one line and 0.
set -euo pipefail
cd "$(dirname "$0")/java"

# The versions of the matrix; the Go tests read this list from target/classpath.
versions=(3.13.4 3.15.5 3.16.3 3.16.8 3.20.1 3.34.1 3.52.0 4.7.0)
newest='[4.7.0,4.99999)'

# Guava's: the first release whose arithmetic is today's, and the newest when this was written. A warm-up
# of 23.1 and before truncates the sum of what the permits on both sides of the threshold cost, which can
# round up to the next microsecond; since 23.2 each summand is truncated.
guavas=(23.2-jre 33.8.0-jre)

cache=${RATELIMITER_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ratelimiter-compat}
export MAVEN_OPTS="${MAVEN_OPTS:-} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

have_java() {
	command -v mvn >/dev/null && command -v javac >/dev/null &&
		[ "$(javac -version 2>&1 | sed 's/^javac \([0-9]*\).*/\1/')" -ge 17 ]
}

install_java() {
	command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
	echo "compat: installing JDK and Maven" >&2
	{
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jdk-headless maven ||
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends default-jdk-headless maven
	} >&2
}

mvn=(mvn -q -B -Dstyle.color=never)

# online ARG... runs Maven; Debian's resets the terminal's colours even when told not to use any.
online() { "${mvn[@]}" "$@" 2>&1 | sed $'s/\e\\[0\\?m//g' >&2; }

# maven ARG... runs without network first: with a warm repository that is all it takes.
maven() { "${mvn[@]}" -o "$@" >/dev/null 2>&1 || online "$@"; }

# complete FILE: the class path, one jar a line, exists, and so does every jar on it.
complete() {
	[ -s "$1" ] || return 1
	local jar
	while IFS= read -r jar; do
		[ -f "$jar" ] || return 1
	done <"$1"
}

# classpath NAME PROPERTY=VERSION-OR-RANGE MAVEN...
classpath() {
	local file=$cache/$1.$recipe property=$2
	shift 2
	"$@" dependency:build-classpath "-D$property" "-Dmdep.outputFile=$file.$$" || return 1
	# Written aside and moved: two preparations may run at once.
	tr : '\n' <"$file.$$" >"$file.$$.lines"
	printf '\n' >>"$file.$$.lines"
	mv "$file.$$.lines" "$file"
	rm -f "$file.$$"
}

if ! have_java && ! { install_java && have_java; }; then
	echo "compat: no JDK 17 with Maven here; the Java lane needs both" >&2
	[ "${CI:-}" != true ] || exit 1
	exit 0
fi

# compile compiles the peer of this directory, and sets recipe.
compile() {
	mkdir -p "$cache" target/classpath
	recipe=$(cksum <pom.xml | cut -d' ' -f1) # another pom.xml, other class paths
	if [ ! -f target/compiled ] || [ -n "$(find pom.xml src -newer target/compiled -print -quit)" ]; then
		maven compile
		touch target/compiled
	fi
}

compile

missing=()
for version in "${versions[@]}"; do
	complete "$cache/$version.$recipe" || missing+=("$version")
done
# Two at a time: Maven is mostly start-up.
while [ ${#missing[@]} -gt 0 ]; do
	pids=()
	for version in "${missing[@]:0:2}"; do
		echo "compat: fetching Redisson $version" >&2
		classpath "$version" "redisson.version=$version" maven &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid"; done
	missing=("${missing[@]:2}")
done

file=$cache/newest.$recipe
if [ "${1:-}" = --newest ] || ! complete "$file" || [ -n "$(find "$file" -mmin +1440)" ]; then
	# A range needs the registry; when it does not answer, the last answer stands.
	classpath newest "redisson.version=$newest" online -U || {
		complete "$file" || { echo "compat: cannot resolve the newest Redisson 4.x" >&2; exit 1; }
		echo "compat: cannot ask for the newest Redisson 4.x; keeping the last answer" >&2
	}
fi

for version in "${versions[@]}" newest; do
	cp "$cache/$version.$recipe" "target/classpath/$version"
done

cd guava
compile
for version in "${guavas[@]}"; do
	complete "$cache/guava-$version.$recipe" || {
		echo "compat: fetching Guava $version" >&2
		classpath "guava-$version" "guava.version=$version" maven
	}
	cp "$cache/guava-$version.$recipe" "target/classpath/$version"
done
