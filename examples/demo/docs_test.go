// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"html"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestDocsRecording checks that docs/demo.svg is a recording of what the demo prints, or writes it with RRL_TEST_DOCS set.
func TestDocsRecording(t *testing.T) {
	redistest.NoServer(t)
	const file = "../../docs/demo.svg"
	out := inBubble(t, func(ctx context.Context, rdb *redis.Client, name string, out *strings.Builder, opts ...ratelimiter.Option) {
		require.NoError(t, play(ctx, rdb, name, out, opts...))
	})
	picture := recording("$ go run ./examples/demo\n" + strings.ReplaceAll(out, "NAME", "demo"))
	if os.Getenv("RRL_TEST_DOCS") != "" {
		require.NoError(t, os.WriteFile(file, []byte(picture), 0o600))
	}
	require.Equal(t, picture, string(redistest.Must(os.ReadFile(file))(t)), "RRL_TEST_DOCS=write go test -run Docs ./examples/demo writes it")
}

// recording draws the lines of a terminal. Each lights up at the time with which it begins, or with the line before it, so that
// all can be read where pictures do not move.
func recording(text string) string {
	const width, top, height = 1000, 30, 19
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" xml:space="preserve" role="img" aria-label="what the demo prints, line by line">
<style>
text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d8dee6; white-space: pre }
.redis { fill: #8b98a8 } .granted { fill: #7ed491 } .rejected { fill: #f2a65a } .error { fill: #f27a7a } .prompt { fill: #9cc4ff }
@keyframes appear { from { opacity: .3 } }
@media (prefers-reduced-motion: no-preference) { text { animation: appear 1ms backwards } }
</style>
<rect width="100%%" height="100%%" rx="8" fill="#161b22"/>
`, width, top+height*len(lines))
	at := 0.0
	for i, line := range lines {
		first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if s, err := strconv.ParseFloat(strings.TrimSuffix(first, "s"), 64); err == nil && strings.HasSuffix(first, "s") {
			at = s
		}
		class := "redis"
		switch {
		case strings.HasPrefix(line, "$"):
			class = "prompt"
		case strings.HasSuffix(line, ": granted"):
			class = "granted"
		case strings.HasSuffix(line, ": rejected"):
			class = "rejected"
		case strings.Contains(line, "ratelimiter:"):
			class = "error"
		}
		fmt.Fprintf(&b, "<text x=\"16\" y=\"%d\" class=\"%s\" style=\"animation-delay: %.1fs\">%s</text>\n", top+height*i, class, at+0.5, html.EscapeString(line))
	}
	return b.String() + "</svg>\n"
}
