// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/goredisson/ratelimiter"

// allowed lists the packages that importers may link besides the standard library and those of this module. Every new
// line is a cost for all importers.
var allowed = map[string]bool{
	"github.com/redis/go-redis/v9": true,
	"github.com/cespare/xxhash/v2": true, // through go-redis
	"go.uber.org/atomic":           true, // through go-redis
	"golang.org/x/sys":             true, // through go-redis
	"github.com/google/uuid":       true,
}

// Strangers returns the packages that a program that imports pkg links but should not: those of other modules, except
// go-redis, its dependencies and uuid, and those of this module except ours. The packages in ours are named by their
// paths within the module, and the root is "".
func Strangers(t testing.TB, pkg string, ours ...string) []string {
	t.Helper()
	var list []string
	for path, module := range Linked(t, pkg) {
		within := strings.TrimPrefix(strings.TrimPrefix(path, modulePath), "/")
		if module == modulePath && slices.Contains(ours, within) || allowed[module] {
			continue
		}
		list = append(list, path+" of "+module)
	}
	return list
}

// Linked returns the packages that a program that imports pkg links besides the standard library, each with its
// module.
func Linked(t testing.TB, pkg string) map[string]string {
	t.Helper()
	out := goCommand(t, ".", nil, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}{{end}}", pkg)
	packages := map[string]string{}
	for line := range strings.Lines(out) {
		if path, module, _ := strings.Cut(strings.TrimSpace(line), " "); path != "" {
			packages[path] = module
		}
	}
	require.Greater(t, len(packages), 5, "go list answered next to nothing")
	return packages
}

// Core lists the packages of this module that a program that imports the root package links, by their paths within
// the module.
var Core = []string{"", "internal/wire", "internal/permit", "internal/retry", "internal/outage", "internal/dispatch", "internal/redisson",
	"internal/link", "internal/recent", "internal/engine", "internal/engine/fair", "internal/engine/known", "internal/engine/list", "internal/stack"}

// Rooms returns the packages of this module that a program that imports pkg links, by their paths within the module,
// and whether the program links go-redis. After "-test" it is the program of pkg's tests.
func Rooms(t testing.TB, pkg ...string) (ours []string, goRedis bool) {
	t.Helper()
	out := goCommand(t, ".", nil, append([]string{"list", "-deps"}, pkg...)...)
	for line := range strings.Lines(out) {
		path := strings.TrimSpace(line)
		if within, ok := strings.CutPrefix(path, modulePath); ok {
			ours = append(ours, strings.TrimPrefix(within, "/"))
		}
		goRedis = goRedis || strings.HasPrefix(path, "github.com/redis/go-redis/")
	}
	require.NotEmpty(t, ours)
	return ours, goRedis
}

// ImportersModules returns the modules in the module graph of a program that requires this module and imports
// packages of it. The program's own module, called importer, is among them. It runs the go command on a module in a
// new folder, which takes this module from the working directory, the root. Nothing is fetched that the module cache
// has, and nothing is compiled.
func ImportersModules(t testing.TB, packages ...string) []string {
	t.Helper()
	root, err := os.Getwd()
	require.NoError(t, err)
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	require.Equal(t, "module "+modulePath, strings.SplitN(string(mod), "\n", 2)[0], "the working directory is the root")
	version := regexp.MustCompile(`(?m)^go \S+$`).FindString(string(mod))
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)

	var src strings.Builder
	src.WriteString("package importer\n\n")
	for _, p := range packages {
		fmt.Fprintf(&src, "import _ %q\n", p)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": fmt.Sprintf("module importer\n\n%s\n\nrequire %s v0.0.0\n\nreplace %[2]s => %s\n", version, modulePath, root),
		"go.sum": string(sum),
		"x.go":   src.String(),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	env := []string{"GOWORK=off", "GOFLAGS=" + os.Getenv("GOFLAGS") + " -mod=mod"}
	goCommand(t, dir, env, "list", "-deps", "./...") // adds what the build needs to go.mod, and compiles nothing
	return strings.Fields(goCommand(t, dir, env, "list", "-m", "-f", "{{.Path}}", "all"))
}

// goCommand returns what the go command prints in dir with env added to the environment.
func goCommand(t testing.TB, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stderr = &strings.Builder{}
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", args[0], cmd.Stderr)
	return string(out)
}
