// SPDX-License-Identifier: Apache-2.0

package prometheusratelimiter

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestDocsNameEveryMetric compares the names of the metrics with those of the table in docs/metrics.md: those of Prometheus, and
// those that otelratelimiter has beside them.
func TestDocsNameEveryMetric(t *testing.T) {
	doc := redistest.Must(os.ReadFile("../docs/metrics.md"))(t)
	for dir, name := range map[string]string{".": `(?:ratelimiter|httplimit)_[a-z_]+`, "../otelratelimiter": `(?:ratelimiter|httplimit)\.[a-z]+(?:\.[a-z]+)*`} {
		told, has := map[string]bool{}, map[string]bool{}
		for _, row := range regexp.MustCompile("(?m)^\\| `ratelimiter\\..*|^\\| `httplimit\\..*|^\\| \\| `ratelimiter_.*").FindAllString(string(doc), -1) {
			for _, m := range regexp.MustCompile("`("+name+")`").FindAllStringSubmatch(row, -1) {
				told[m[1]] = true
			}
		}
		files := redistest.Must(filepath.Glob(filepath.Join(dir, "*.go")))(t)
		for _, f := range files {
			if match, _ := filepath.Match("*_test.go", filepath.Base(f)); match {
				continue
			}
			src := redistest.Must(os.ReadFile(f))(t)
			for _, m := range regexp.MustCompile(`"(`+name+`)"`).FindAllStringSubmatch(string(src), -1) {
				has[m[1]] = true
			}
		}
		delete(has, "ratelimiter.acquire") // a span
		require.Equal(t, has, told)
	}
}
