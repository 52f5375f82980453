package redistest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/goredisson/ratelimiter"

// allowed is what importers of this module's packages get besides the standard library and our own packages:
// a new line here is a cost that every importer pays.
var allowed = map[string]bool{
	"github.com/redis/go-redis/v9": true,
	"github.com/cespare/xxhash/v2": true, // go-redis
	"go.uber.org/atomic":           true, // go-redis
	"golang.org/x/sys":             true, // go-redis
	"github.com/google/uuid":       true,
}

// Strangers are the packages that a program which imports pkg links though it should not: those of other
// modules than go-redis with what it brings and uuid, and of this module all but ours, each named by its
// path within the module and "" the root.
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

// Linked is what a program that imports pkg links besides the standard library: each package with its
// module.
func Linked(t testing.TB, pkg string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}{{end}}", pkg)
	cmd.Stderr = &strings.Builder{}
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", cmd.Stderr)
	packages := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, module, _ := strings.Cut(strings.TrimSpace(line), " "); path != "" {
			packages[path] = module
		}
	}
	require.Greater(t, len(packages), 5, "go list answered next to nothing")
	return packages
}
