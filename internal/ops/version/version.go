// SPDX-License-Identifier: Apache-2.0

// Package version says which version of a program runs, and what it was built from.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// release is the version of the programs of a release, which the linker sets; the go command records none in a build
// from a work tree. All modules of a release have the same.
var release string

// String returns the version of the module and, in a build from a work tree, the commit.
func String() string {
	return versionOf(buildInfo())
}

// Details returns what a report of a problem needs to say about the program, one fact a line: its version with the Go
// release and the platform, the versions of the library and of go-redis, and the commit that it was built from.
func Details(program string) string {
	info := buildInfo()
	lines := []string{fmt.Sprintf("%s %s %s %s/%s", program, versionOf(info), runtime.Version(), runtime.GOOS, runtime.GOARCH)}
	for _, m := range info.Deps {
		switch name := strings.TrimPrefix(m.Path, "github.com/"); name {
		case "goredisson/ratelimiter":
			lines = append(lines, "ratelimiter "+moduleVersion(m))
		case "redis/go-redis/v9":
			lines = append(lines, "go-redis "+moduleVersion(m))
		}
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if commit := set["vcs.revision"]; commit != "" {
		line := "commit " + commit + " of " + set["vcs.time"]
		if set["vcs.modified"] == "true" {
			line += ", with changes"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{}
}

// moduleVersion returns the version of a module that is linked. One of a work tree is of the release.
func moduleVersion(m *debug.Module) string {
	if m.Replace != nil {
		m = m.Replace
	}
	if m.Version == "" || m.Version == "(devel)" {
		return cmp.Or(release, "(devel)")
	}
	return m.Version
}

func versionOf(info *debug.BuildInfo) string {
	if release != "" {
		return release
	}
	v := cmp.Or(info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		// A pseudo-version has the commit in it already.
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && !strings.Contains(v, s.Value[:12]) {
			v += " " + s.Value[:12]
		}
	}
	return v
}
