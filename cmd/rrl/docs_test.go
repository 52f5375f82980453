// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestDocsNameCommandsAndFlags checks that each command of rrl in the pages is one, with flags that it has.
func TestDocsNameCommandsAndFlags(t *testing.T) {
	help := map[string]string{}
	for _, c := range newApp(&bytes.Buffer{}, &bytes.Buffer{}).Commands {
		var out, errs bytes.Buffer
		require.Equal(t, command.ExitOK, run(t.Context(), []string{"rrl", "help", c.Name}, &out, &errs), "%s: %s", c.Name, &errs)
		help[c.Name] = out.String()
	}
	help["completion"] = ""
	call, flag := regexp.MustCompile("(?:^|[ `(])rrl ([a-z][a-z-]*)([^`#\n]*)"), regexp.MustCompile(`(?:^| )(--[a-z][a-z-]*)`)
	found := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/zh/*.md"} {
		files := redistest.Must(filepath.Glob(pattern))(t)
		for _, f := range files {
			text := redistest.Must(os.ReadFile(f))(t)
			for _, code := range regexp.MustCompile("(?s)```.*?```|`rrl [^`\n]*`").FindAllString(string(text), -1) {
				for line := range strings.Lines(code) {
					for _, m := range call.FindAllStringSubmatch(line, -1) {
						about, ok := help[m[1]]
						require.True(t, ok, "%s: rrl %s", f, m[1])
						for _, name := range flag.FindAllStringSubmatch(m[2], -1) {
							require.Contains(t, about, name[1], "%s: rrl %s%s", f, m[1], m[2])
							found++
						}
					}
				}
			}
		}
	}
	require.Greater(t, found, 20)
}
