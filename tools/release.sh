#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tags a release of every module that users import or install, all with one
# version: VERSION=v1.2.3 tools/release.sh, or `make release VERSION=v1.2.3`.
# With DRY=1 the tags stay in a clone that is thrown away, and changes that are
# not committed are part of it; the lane checks does that.
#
# A module is released unless its directory is tools or benchmarks, or ends in
# _test. One with a `replace` cannot be installed by its path, so the tags of all
# modules but the root are on commits off the branch, one for each module, whose
# go.mod requires what was tagged before it. Before a tag leaves the clone, every
# command is installed and every module is imported alone, by a program in an
# empty directory, from a module proxy made of files. Nothing is pushed.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
version=${VERSION:-} dry=${DRY:-}
path=github.com/goredisson/ratelimiter

stop() { echo "release: $*" >&2; exit 1; }
[[ $version =~ ^v[01]\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || stop "VERSION must be v0.N.N or v1.N.N, not \"$version\""
commit=$(git rev-parse HEAD)
if [ -n "$dry" ]; then
    changed=$(git -c user.name=release -c user.email=release@localhost stash create)
    commit=${changed:-$commit}
else
    [ -z "$(git status --porcelain)" ] || stop "the working tree has changes"
    grep -q "^## \[${version#v}\]" CHANGELOG.md || stop "CHANGELOG.md has no heading \"## [${version#v}]\""
    [ -z "$(git tag --list "$version")" ] || stop "there is a tag $version already"
fi

work=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
git clone --quiet --shared --no-tags --no-checkout "$root" "$work/clone"
cd "$work/clone"
git config user.name "$(git -C "$root" config user.name || echo release)"
git config user.email "$(git -C "$root" config user.email || echo release@localhost)"
git checkout --quiet --detach "$commit"

# ours DIR prints the directories of our modules that the module there requires; "." is the root.
ours() { sed -n "s|^replace $path\(/[^ ]*\)\? .*|\1|p" "$1/go.mod" | sed 's|^/||; s|^$|.|'; }

# Each module stands after those that it requires.
modules=$(find . -name go.mod -not -path '*_test/*' -not -path './tools/*' -not -path './benchmarks/*' -not -path './examples/frameworks/*' -printf '%P\n' |
    while read -r mod; do
        dir=$(dirname "$mod")
        echo "$dir $dir"
        for required in $(ours "$dir"); do echo "$required $dir"; done
    done | tsort)

# Git takes the clone for the repository of the path, and Go looks for our modules there and nowhere else. What others
# publish comes from the cache of this machine where it is there. With -trimpath the cache of builds does not know
# directories, so that another release compiles only what has changed.
export GOWORK=off GOTOOLCHAIN=local GOFLAGS="-modcacherw -trimpath ${GOFLAGS:-}"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$work/clone.insteadOf" GIT_CONFIG_VALUE_0="https://$path"
others="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"

quietly() { # quietly COMMAND...: its output only when it fails
    "$@" >"$work/output" 2>&1 || { cat "$work/output"; return 1; }
}

tag() { # tag DIR: the module in that directory
    local dir=$1 required
    if [ "$dir" = . ]; then
        git tag "$version"
    else
        for required in $(ours "$dir"); do
            required=$path/$required
            required=${required%/.}
            go -C "$dir" mod edit -dropreplace="$required" -require="$required@$version"
        done
        quietly go -C "$dir" mod tidy
        git commit --quiet --all --message "$dir: release $version"
        git tag "$dir/$version"
    fi
    echo "$dir is $(git rev-parse --short HEAD)"
}

(
    export GOPRIVATE="$path" GOPROXY="$others" GOMODCACHE="$work/tagged"
    for dir in $modules; do tag "$dir"; done
    for dir in $modules; do
        module=$path/$dir
        quietly go mod download "${module%/.}@$version"
    done
)

# From here on a user's view: the modules come from files, and there is no repository.
unset GIT_CONFIG_COUNT
export GOPROXY="file://$work/tagged/cache/download,$others" GONOSUMDB="$path,$path/*" GOMODCACHE="$work/user" GOBIN="$work/bin"

# install PACKAGE: a command, as users do it, which has to know its version.
install() {
    quietly go install "$1@latest"
    go version -m "$GOBIN/${1##*/}" | grep -q "^	mod	.*	$version	" || stop "$1 is not of $version"
    echo "go install $1@latest"
}

# import MODULE PACKAGE...: a program in an empty module. What it gets of ours is of one version. Nothing that it links of the
# MODULE is built on the inside of another one, which a newer version may change.
import() {
    local module=$1 inside
    shift
    { echo "package main"; printf 'import _ "%s"\n' "$@"; echo "func main() {}"; } >main.go
    quietly go mod tidy
    quietly go build -o "$work/bin/importer" .
    [ "$(go list -m -f '{{.Version}}' "$path")" = "$version" ] || stop "an importer of $module gets another version of $path"
    inside=$(go list -deps -f "{{with .Module}}{{if eq .Path \"$module\"}}{{join \$.Imports \"\n\"}}{{end}}{{end}}" . |
        grep "^$path/.*internal" | grep -v "^$module/" | sort -u || true)
    [ -z "$inside" ] || stop "$module imports of another module" $inside
    echo "go get $module@latest: an importer of its $# packages builds"
}

for dir in $modules; do
    module=$path/$dir
    module=${module%/.}
    mkdir -p "$work/importer/$dir" && cd "$work/importer/$dir"
    quietly go mod init example.com/importer
    quietly go get "$module@latest"
    packages=$(go list -e -f '{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}' "$module/..." | grep -v /internal/ || true)
    commands=$(go list -e -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' "$module/..." | grep -v "^$path/examples" || true)
    [ -z "$packages" ] || import "$module" $packages
    for package in $commands; do install "$package"; done
done
for program in rrl rrl-gateway; do
    said=$("$work/bin/$program" version)
    [[ $said == "$program $version "*"ratelimiter $version"* ]] || stop "$program version says \"$said\""
    echo "$program version: $(paste -sd, <<<"$said")"
done

[ -z "$dry" ] || exit 0
tags=$(cd "$work/clone" && git tag --list)
git -C "$root" fetch --quiet "$work/clone" $(for t in $tags; do echo "refs/tags/$t:refs/tags/$t"; done)
echo "The tags are in this repository. To publish them:"
echo "  git push origin $(echo $tags)"
