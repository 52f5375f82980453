package httplimit

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/goredisson/ratelimiter"

// linked is the modules that an importer of httplimit gets besides the standard library: those of the root
// package, and no other.
var linked = map[string]bool{
	"github.com/redis/go-redis/v9": true,
	"github.com/cespare/xxhash/v2": true, // go-redis
	"go.uber.org/atomic":           true, // go-redis
	"golang.org/x/sys":             true, // go-redis
	"github.com/google/uuid":       true,
	modulePath:                     true,
}

// TestImportersGetLittle: the YAML parser comes with package rulefile alone.
func TestImportersGetLittle(t *testing.T) {
	modules, packages := linkedBy(t, ".")
	for m := range modules {
		require.True(t, linked[m], "httplimit links %s", m)
	}
	for p := range packages {
		require.NotContains(t, p, modulePath+"/httplimit/", "httplimit links a package that belongs to it")
		require.NotContains(t, p, "/internal/redistest")
		require.NotContains(t, p, "/internal/embedredis")
	}
	modules, _ = linkedBy(t, "./rulefile")
	for m := range modules {
		require.True(t, linked[m] || m == "go.yaml.in/yaml/v3", "rulefile links %s", m)
	}
	require.True(t, modules["go.yaml.in/yaml/v3"], "the look finds what is there")
}

func linkedBy(t *testing.T, pkg string) (modules, packages map[string]bool) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}{{end}}", pkg)
	cmd.Stderr = &strings.Builder{}
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", cmd.Stderr)
	modules, packages = map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if path, module, _ := strings.Cut(strings.TrimSpace(line), " "); path != "" {
			modules[module], packages[path] = true, true
		}
	}
	require.Greater(t, len(packages), 5, "go list answered next to nothing")
	return modules, packages
}
