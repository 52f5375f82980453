package ratelimiter

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func allScripts() []*script {
	return []*script{acquireScript, auditScript, availableScript, releaseScript, trySetRateScript, setRateScript,
		trimScript, expireScript, clearExpireScript, expireTimeScript, deleteScript, inspectScript,
		giveBackScript, acquireAllScript, reserveScript, coolDownScript, coolDownUntilScript, liftCoolDownScript}
}

// TestScriptHeaders holds together the header of each script, the KEYS and ARGV of its body, and the
// numbers that the Go wrapper sends; send refuses a call with other numbers.
func TestScriptHeaders(t *testing.T) {
	files, err := os.ReadDir("scripts")
	require.NoError(t, err)
	require.Len(t, allScripts(), len(files), "a script without a wrapper, or the other way round")

	for _, s := range allScripts() {
		t.Run(s.Name, func(t *testing.T) { redistest.ScriptHeader(t, s.Script) })
	}
}

// A wrapper that sends other numbers of keys or arguments is refused before anything is sent.
func TestSendHoldsToTheHeader(t *testing.T) {
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		sent := count(w.rdb)
		_, err := w.l.send(w.ctx, acquireScript, w.l.keys.of(Overall)[:2], make([]any, acquireScript.Args)...)
		require.ErrorContains(t, err, "takes 3 keys and 10 arguments, got 2 and 10")
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
