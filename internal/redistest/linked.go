package redistest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
