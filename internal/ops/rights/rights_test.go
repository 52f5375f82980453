// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	_ "github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/ops/rights"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	_ "github.com/goredisson/ratelimiter/limit"
	"github.com/stretchr/testify/require"
)

// TestEveryScriptHasItsRights checks that no script of package ratelimiter is missing in the table: what package limit is said to
// send are its own scripts.
func TestEveryScriptHasItsRights(t *testing.T) {
	ours, theirs := 0, map[string]bool{}
	for _, r := range rights.Algorithms(rights.Acquire) {
		theirs["Shared."+strings.TrimPrefix(r.Operation, "Shared.")] = true
	}
	for _, s := range dispatch.Loaded() {
		if !theirs["Shared."+s.Name] {
			ours++
			require.NoError(t, redistest.LiteralKeys(s.Src), s.Name)
		}
	}
	files := redistest.Must(os.ReadDir("../../../scripts"))(t)
	scripts := slices.DeleteFunc(files, func(f os.DirEntry) bool { return !strings.HasSuffix(f.Name(), ".lua") })
	require.Len(t, scripts, ours)
}

// TestPatterns checks the rules of an ACL for the keys of names that have a meaning in a pattern.
func TestPatterns(t *testing.T) {
	for name, want := range map[string][]string{
		"orders": {"~orders", "~{orders}:*"},
		"a{b}c":  {"~a{b}c", "~a{b}c:*"},
		"a*[b]?": {`~a\*\[b\]\?`, `~{a\*\[b\]\?}:*`},
		"a b":    {"~a?b", "~{a?b}:*"},
	} {
		require.Equal(t, want, rights.Patterns(name))
	}
}

// lists are the rules of the roles, as the pages have them.
func lists() (acquire, administer []string) {
	acquire = rights.Rules(rights.Of(rights.Acquire, "orders", "", permit.Overall))
	administer = slices.DeleteFunc(rights.Rules(rights.Of(rights.Administer, "orders", "", permit.Overall)), func(r string) bool { return slices.Contains(acquire, r) })
	return acquire, administer
}

// wrapped returns rules in lines of some 120 bytes.
func wrapped(rules []string) string {
	var b strings.Builder
	for line := range slices.Chunk(rules, 16) {
		b.WriteString("    " + strings.Join(line, " ") + "\n")
	}
	return b.String()
}

// commands returns the two commands that make a user of each role, for the limiter orders.
func commands() string {
	acquire, administer := lists()
	of := func(user string, rules []string) string {
		return fmt.Sprintf("    ACL SETUSER %s on >PASSWORD %s %s\n", user, strings.Join(rights.Patterns("orders"), " "), strings.Join(rules, " "))
	}
	return of("app", acquire) + "\n" + of("admin", append(acquire, administer...))
}

// TestDocumentedRights compares what the pages say of an ACL with the rights, or writes it with RRL_TEST_DOCS set.
func TestDocumentedRights(t *testing.T) {
	acquire, administer := lists()
	var table strings.Builder
	table.WriteString("To acquire:\n\n" + wrapped(acquire) + "\nTo administer, besides:\n\n" + wrapped(administer))
	table.WriteString("\nIf the database is not 0:\n\n" + wrapped(rights.Rules(rights.Connection(1, false))))
	table.WriteString("\nOn a cluster:\n\n" + wrapped(rights.Rules(rights.Connection(0, true))))
	table.WriteString("\n| call | of who is to | keys |\n|---|---|---|\n")
	var order []string
	keys, roles := map[string][]string{}, map[string]string{}
	for _, r := range rights.Of(rights.Administer, "NAME", "ID", permit.PerClient) {
		name := "`" + r.Operation + "`"
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
		roles[name] = r.Role.String()
		for _, k := range r.Keys {
			if k = "`" + k + "`"; !slices.Contains(keys[name], k) {
				keys[name] = append(keys[name], k)
			}
		}
	}
	for _, name := range order {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", name, roles[name], strings.Join(keys[name], " "))
	}
	table.WriteString("\nPackage `limit` needs, on the keys `limit2:*`:\n\n" + wrapped(rights.Rules(rights.Algorithms(rights.Acquire))) +
		"\n`Shared.Reset` also needs `+unlink`.\n")
	for page, want := range map[string]string{"design/protocol.md": table.String(), "production.md": commands(), "zh/production.md": commands()} {
		const begin, end = "<!-- Written by RRL_TEST_DOCS=write go test -run Rights ./internal/ops/rights -->\n\n", "\n<!-- The end of what is written. -->\n"
		path := "../../../docs/" + page
		doc := string(redistest.Must(os.ReadFile(path))(t))
		head, rest, ok1 := strings.Cut(doc, begin)
		there, tail, ok2 := strings.Cut(rest, end)
		require.True(t, ok1 && ok2, "%s has lost its lists", page)
		if os.Getenv("RRL_TEST_DOCS") == "write" {
			require.NoError(t, os.WriteFile(path, []byte(head+begin+want+end+tail), 0o600))
			continue
		}
		require.Equal(t, want, there, "RRL_TEST_DOCS=write go test -run Rights ./internal/ops/rights writes it")
	}
}
