#!/usr/bin/env bash
# Tags a release of every module that users import or install, all with one
# version: VERSION=v1.2.3 tools/release.sh, or `make release VERSION=v1.2.3`.
# With DRY=1 the tags stay in a clone that is thrown away.
#
# A module with a `replace` cannot be installed by its path, so the tags of all
# modules but the root are on commits off the branch, one for each module, whose
# go.mod requires what was tagged before it. Before a tag leaves the clone, a
# program in an empty directory imports every module, and rrl is installed as
# users do it, from a module proxy made of files. Nothing is pushed.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
version=${VERSION:-} dry=${DRY:-}
path=github.com/goredisson/ratelimiter
modules="otelratelimiter prometheusratelimiter examples cmd/rrl cmd/rrl-gateway" # each after those that it requires

stop() { echo "release: $*" >&2; exit 1; }
[[ $version =~ ^v[01]\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || stop "VERSION must be v0.N.N or v1.N.N, not \"$version\""
if [ -z "$dry" ]; then
    [ -z "$(git status --porcelain)" ] || stop "the working tree has changes"
    grep -q "^## \[${version#v}\]" CHANGELOG.md || stop "CHANGELOG.md has no heading \"## [${version#v}]\""
    [ -z "$(git tag --list "$version")" ] || stop "there is a tag $version already"
fi

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
git clone --quiet --shared --no-tags "$root" "$work/clone"
cd "$work/clone"
git config user.name "$(git -C "$root" config user.name || echo release)"
git config user.email "$(git -C "$root" config user.email || echo release@localhost)"
git checkout --quiet --detach

# Git takes the clone for the repository of the path, and Go looks for our modules there and nowhere else. What others
# publish comes from the cache of this machine where it is there.
export GOWORK=off GOTOOLCHAIN=local GOFLAGS="-modcacherw ${GOFLAGS:-}"
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
        required=$(sed -n "s|^replace \($path[^ ]*\) .*|\1|p" "$dir/go.mod")
        for required in $required; do
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
    tag .
    for dir in $modules; do tag "$dir"; done
    for dir in "" $modules; do quietly go mod download "$path${dir:+/$dir}@$version"; done
)

# From here on a user's view: the modules come from files, and there is no repository.
unset GIT_CONFIG_COUNT
export GOPROXY="file://$work/tagged/cache/download,$others" GONOSUMDB="$path,$path/*" GOMODCACHE="$work/user" GOBIN="$work/bin"

quietly go install "$path/cmd/rrl@latest"
said=$("$work/bin/rrl" version | head -1)
[[ $said == *"$version"* ]] || stop "rrl version says \"$said\""
echo "go install $path/cmd/rrl@latest: $said"

for dir in . otelratelimiter prometheusratelimiter; do
    mkdir -p "$work/importer/$dir" && cd "$work/importer/$dir"
    module=$path/$dir
    module=${module%/.}
    quietly go mod init example.com/importer
    quietly go get "$module@latest"
    packages=$(go list -e -f '{{if ne .Name "main"}}{{.ImportPath}}{{end}}' "$module/..." | grep -v /internal/)
    { echo "package main"; printf 'import _ "%s"\n' $packages; echo "func main() {}"; } >main.go
    quietly go mod tidy
    go build -o "$work/bin/importer" .
    [ "$(go list -m -f '{{.Version}}' "$path")" = "$version" ] || stop "an importer of $module gets another version of $path"
    echo "go get $module@latest: an importer of its $(wc -w <<<"$packages") packages builds"
done

[ -z "$dry" ] || exit 0
tags=$(cd "$work/clone" && git tag --list)
git -C "$root" fetch --quiet "$work/clone" $(for t in $tags; do echo "refs/tags/$t:refs/tags/$t"; done)
echo "The tags are in this repository. To publish them:"
echo "  git push origin $(echo $tags)"
