package ratelimiter

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestAPI compares the exported names with testdata/api.txt, which `make api` writes.
func TestAPI(t *testing.T) { redistest.API(t) }

// TestAPIOfEveryPackage checks that no package which others can import lacks a TestAPI.
func TestAPIOfEveryPackage(t *testing.T) {
	redistest.NoServer(t)
	out, err := exec.Command("go", "list", "-f", "{{.Dir}} {{.Name}}", "./...").Output()
	require.NoError(t, err)
	checked := 0
	for line := range strings.Lines(string(out)) {
		dir, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "main" || strings.Contains(dir+"/", "/internal/") {
			continue
		}
		test, err := os.ReadFile(filepath.Join(dir, "exported_test.go"))
		require.NoError(t, err)
		require.Contains(t, string(test), "redistest.API(t)", dir)
		checked++
	}
	require.GreaterOrEqual(t, checked, 7)
}
