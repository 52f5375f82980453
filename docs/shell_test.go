// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestCommandsRun runs every block of shell commands, each in a new directory, on a Redis with the limiters that they name.
// A block that is not run has a comment before it that says why. If a block of text follows at once, they print that, but for
// numbers.
func TestCommandsRun(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	bin := redistest.Must(filepath.Abs(t.TempDir()))(t)
	out, err := exec.Command("go", "build", "-o", bin+"/", "./cmd/rrl", "./examples/demo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	server := redistest.Start(t, "--appendonly", "yes")
	client := redistest.Must(ratelimiter.New(server.Client(t)))(t)
	defer client.Close()
	for name, typ := range map[string]ratelimiter.RateType{"orders:create": ratelimiter.Overall, "users": ratelimiter.PerClient} {
		l := client.RateLimiter(name).WithRate(ratelimiter.Rate{Type: typ, Permits: 50, Interval: time.Minute})
		require.NoError(t, l.Acquire(t.Context(), 1))
	}
	block := regexp.MustCompile("(?s)(<!-- not run: [^>]+ -->\n)?```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?")
	number := regexp.MustCompile(`\d+`)
	replace := strings.NewReplacer("go run ./cmd/rrl ", "rrl ", "go run ./examples/demo", "demo", "redis://127.0.0.1:6379", "redis://"+server.Addr())
	ran, shown := 0, 0
	for f, text := range pages(t) {
		if strings.Contains(f, "zh") {
			continue // TestTranslations compares
		}
		dir := t.TempDir() // of all blocks of a page: one may write what the next one reads
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			if m[1] != "" {
				continue
			}
			ran++
			cmd := exec.Command("bash", "-eu", "-o", "pipefail", "-c", replace.Replace(m[2]))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "REDIS_URL=redis://"+server.Addr())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s:\n%s\n%s", f, m[2], out)
			if m[3] != "" { // what the page says that they print
				shown++
				require.Equal(t, number.ReplaceAllString(m[3], "0"), number.ReplaceAllString(string(out), "0"), f)
			}
		}
	}
	require.Greater(t, ran, 5)
	require.Positive(t, shown)
}
