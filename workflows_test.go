package ratelimiter

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestWorkflowsRunWhatMakeRuns checks that a workflow runs nothing but targets of the Makefile, and lanes that exist.
func TestWorkflowsRunWhatMakeRuns(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	script, err := os.ReadFile("tools/test-lanes.sh")
	require.NoError(t, err)
	lanes := strings.Fields(regexp.MustCompile(`(?m)^lanes="(.*)"$`).FindStringSubmatch(string(script))[1])
	call := regexp.MustCompile(`^make ([a-z-]+)(?: LANES="([a-z ]+)")?(?: [A-Z]+=[a-z0-9]+)*$`)
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var workflow struct {
			Jobs map[string]struct{ Steps []struct{ Run string } }
		}
		require.NoError(t, yaml.Unmarshal(text, &workflow), file)
		calls := 0
		for _, job := range workflow.Jobs {
			for _, step := range job.Steps {
				if step.Run == "" {
					continue
				}
				calls++
				m := call.FindStringSubmatch(step.Run)
				require.NotNil(t, m, "%s runs %q, which is no call of make", file, step.Run)
				require.Regexp(t, `(?m)^`+m[1]+`: `, string(makefile), file)
				for _, lane := range strings.Fields(m[2]) {
					require.True(t, slices.Contains(lanes, lane), "%s: there is no lane %s", file, lane)
				}
			}
		}
		require.NotZero(t, calls, file)
	}
}
