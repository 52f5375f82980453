package ratelimiter

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func allScripts() []*script {
	return []*script{acquireScript, auditScript, availableScript, releaseScript, trySetRateScript, setRateScript,
		trimScript, expireScript, clearExpireScript, expireTimeScript, deleteScript, inspectScript,
		giveBackScript, acquireAllScript, coolDownScript, coolDownUntilScript, liftCoolDownScript}
}

// TestScriptHeaders holds together the header of each script, the KEYS and ARGV of its body, and the
// numbers that the Go wrapper sends; send refuses a call with other numbers.
func TestScriptHeaders(t *testing.T) {
	files, err := os.ReadDir("scripts")
	require.NoError(t, err)
	require.Len(t, allScripts(), len(files), "a script without a wrapper, or the other way round")

	index := regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	entry := regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)\]   ?\S`)
	for _, s := range allScripts() {
		t.Run(s.Name, func(t *testing.T) {
			src, err := os.ReadFile("scripts/" + s.Name + ".lua")
			require.NoError(t, err)
			require.Equal(t, string(src), s.Src)
			require.True(t, strings.HasPrefix(s.Src, "-- "+s.Name+": "), "the header names the script")

			head, body, ok := strings.Cut(s.Src, "\n\n")
			require.True(t, ok)
			documented := map[string]int{}
			for _, line := range strings.Split(head, "\n") {
				require.True(t, strings.HasPrefix(line, "--"), line)
				if m := entry.FindStringSubmatch(line); m != nil {
					documented[m[1]]++
					require.Equal(t, strconv.Itoa(documented[m[1]]), m[2], "in order, without gaps: %s", line)
				}
			}
			require.Contains(t, head, "\n-- Returns ")
			used := map[string]map[string]bool{"KEYS": {}, "ARGV": {}}
			for _, m := range index.FindAllStringSubmatch(body, -1) {
				used[m[1]][m[2]] = true
			}
			for kind, n := range map[string]int{"KEYS": s.Keys, "ARGV": s.Args} {
				require.Equal(t, n, documented[kind], "%s in the header", kind)
				require.Len(t, used[kind], n, "%s in the body: %v", kind, used[kind])
				for i := 1; i <= n; i++ {
					require.True(t, used[kind][strconv.Itoa(i)], "%s[%d] is not used", kind, i)
				}
			}
		})
	}
}

// A wrapper that sends other numbers of keys or arguments is refused before anything is sent.
func TestSendHoldsToTheHeader(t *testing.T) {
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		sent := count(w.rdb)
		_, err := w.l.send(w.ctx, acquireScript, w.l.keys.of(Overall)[:2], make([]any, acquireScript.Args)...)
		require.ErrorContains(t, err, "takes 3 keys and 9 arguments, got 2 and 9")
		_, err = w.l.send(w.ctx, deleteScript, w.l.keys.all(Overall), 1)
		require.ErrorContains(t, err, "got 5 and 1")
		require.Zero(t, sent.sent.Load())
	})
}

// Key names come from keys.go alone.
func TestKeysAreMadeInOnePlace(t *testing.T) {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") || f.Name() == "keys.go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				require.NotRegexp(t, `:(value|permits)\b|\}:`, l.Value, f.Name())
			}
			return true
		})
	}
}
