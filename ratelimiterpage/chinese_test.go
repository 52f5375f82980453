// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"os"
	"regexp"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestChineseFindings checks that docs/zh/findings.md says of each check what the page says.
func TestChineseFindings(t *testing.T) {
	text := string(redistest.Must(os.ReadFile("../docs/zh/findings.md"))(t))
	rows := regexp.MustCompile("(?m)^\\| <a id=\"([a-z-]+)\"></a>`[a-z-]+` \\| (.*) \\| (.*) \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(text, -1)
	require.Len(t, rows, len(explained))
	for _, row := range rows {
		e, ok := explained[row[1]]
		require.True(t, ok, row[1])
		require.Equal(t, []string{e.means, e.java, e.golang}, row[2:5], row[1])
	}
}
