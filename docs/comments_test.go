// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// publicPackages are the directories of the packages that programs import. Those of a module of their own come last.
var publicPackages = []string{
	".", "limit", "httplimit", "httplimit/inbound", "httplimit/platform", "httplimit/rulefile",
	"metricname", "ratelimiterpage", "ratelimitertest", "grpclimit", "otelratelimiter", "prometheusratelimiter",
}

// comments returns the doc comments of the package in dir, by the names of what they describe; that of the package is "package".
func comments(t *testing.T, dir string) map[string]string {
	p, _ := documentation(t, dir)
	all := map[string]string{"package": p.Doc}
	funcs := func(prefix string, list []*doc.Func) {
		for _, f := range list {
			all[prefix+f.Name] = f.Doc
		}
	}
	values := func(list []*doc.Value) {
		for _, v := range list {
			all[v.Names[0]] = v.Doc
		}
	}
	values(slices.Concat(p.Consts, p.Vars))
	funcs("", p.Funcs)
	for _, typ := range p.Types {
		all[typ.Name] = typ.Doc
		values(slices.Concat(typ.Consts, typ.Vars))
		funcs("", typ.Funcs)
		funcs(typ.Name+".", typ.Methods)
	}
	return all
}

// TestCommentsCompile vets the Go code in doc comments: what one copies from go doc or pkg.go.dev compiles. Code that uses only
// the variables of commentFrame is Go; tables and other languages have neither calls nor assignments.
func TestCommentsCompile(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "it compiles")
	looksLikeGo := regexp.MustCompile(`:=|\bfunc\b|\b[a-z]+\.[A-Z]\w*[({]`)
	modules := map[string][]string{} // the packages to vet, by the directory of their module
	for _, dir := range publicPackages {
		module := "."
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			module = dir
		}
		tmp := redistest.Must(os.MkdirTemp(module, "_docs"))(t)
		t.Cleanup(func() { _ = os.RemoveAll(tmp) })
		all := comments(t, dir)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			var p comment.Parser
			for _, block := range p.Parse(all[name]).Content {
				code, ok := block.(*comment.Code)
				if !ok || !looksLikeGo.MatchString(code.Text) {
					continue
				}
				src := redistest.Must(commentProgram(code.Text))(t)
				pkg := filepath.Join(tmp, fmt.Sprint(len(modules[module])))
				require.NoError(t, os.Mkdir(pkg, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(pkg, "x.go"), src, 0o600))
				modules[module] = append(modules[module], "./"+redistest.Must(filepath.Rel(module, pkg))(t))
			}
		}
	}
	require.GreaterOrEqual(t, len(modules["."]), 11)
	require.Len(t, modules, 4)
	for module, packages := range modules {
		cmd := exec.Command("go", append([]string{"vet"}, packages...)...)
		cmd.Dir = module
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// commentProgram returns a Go file with the code of a comment, which is declarations or statements, and what it imports.
func commentProgram(code string) ([]byte, error) {
	body := code
	if !strings.HasPrefix(code, "func ") {
		lines := strings.Split(strings.TrimSpace(code), "\n")
		if !strings.HasPrefix(lines[len(lines)-1], "return ") {
			lines = append(lines, "return nil")
		}
		body = "func block() error {\n" + strings.Join(lines, "\n") + "\n}\n"
	}
	text := body + commentFrame
	var imports strings.Builder
	for _, path := range commentImports {
		name := filepath.Base(strings.TrimSuffix(strings.Replace(path, "go-redis", "redis", 1), "/v9"))
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(text) {
			fmt.Fprintf(&imports, "\t%q\n", path)
		}
	}
	src, err := format.Source([]byte("package x\n\nimport (\n" + imports.String() + ")\n\n" + text))
	if err != nil {
		return nil, fmt.Errorf("%w in\n%s", err, code)
	}
	return src, nil
}

var commentImports = []string{
	"context", "errors", "fmt", "log", "log/slog", "net/http", "strings", "testing", "testing/synctest", "time",
	"github.com/goredisson/ratelimiter", "github.com/goredisson/ratelimiter/grpclimit", "github.com/goredisson/ratelimiter/httplimit",
	"github.com/goredisson/ratelimiter/httplimit/inbound",
	"github.com/goredisson/ratelimiter/httplimit/platform", "github.com/goredisson/ratelimiter/httplimit/rulefile",
	"github.com/goredisson/ratelimiter/limit",
	"github.com/goredisson/ratelimiter/metricname", "github.com/goredisson/ratelimiter/otelratelimiter",
	"github.com/goredisson/ratelimiter/prometheusratelimiter", "github.com/goredisson/ratelimiter/ratelimiterpage",
	"github.com/goredisson/ratelimiter/ratelimitertest",
	"github.com/prometheus/client_golang/prometheus", "github.com/redis/go-redis/v9", "google.golang.org/grpc",
}

// commentFrame declares what the code of a comment may use besides packages.
const commentFrame = `
var (
	ctx    context.Context
	client *ratelimiter.Client
	rdb    *redis.Client
	mux    *http.ServeMux
	w      http.ResponseWriter
	r      *http.Request
	rules  []httplimit.Rule
	text   []byte
	userID string
	api    *limit.Shared

	newMine func(permits int, interval time.Duration) limit.Limiter
	ask     func(context.Context) error // a call of an SDK
	send    func(context.Context) error
)
`

// TestDocLinks checks that each name in brackets in a doc comment is shown as a link: go doc drops the brackets of these alone.
func TestDocLinks(t *testing.T) {
	left := regexp.MustCompile(`\[\*?[A-Za-z][\w.]*\]`)
	for _, dir := range publicPackages {
		p, _ := documentation(t, dir)
		for name, text := range comments(t, dir) {
			doc := p.Parser().Parse(text)
			doc.Content = slices.DeleteFunc(doc.Content, func(b comment.Block) bool { _, code := b.(*comment.Code); return code })
			shown := string(p.Printer().Text(doc))
			assert.Empty(t, left.FindAllString(shown, -1), "%s: %s", dir, name)
		}
	}
}

// TestPackageComments checks that a package comment fits a screen, that go doc of the root is short enough to be read, and that the
// comments of the root and of platform lead to all that they should: the calls that most programs make, the sibling packages, and
// each platform.
func TestPackageComments(t *testing.T) {
	for _, dir := range publicPackages {
		text := comments(t, dir)["package"]
		assert.LessOrEqual(t, strings.Count(text, "\n"), 60, dir)
		assert.GreaterOrEqual(t, strings.Count(text, "\n"), 4, dir)
	}
	shown := redistest.Must(exec.Command("go", "doc", "-all", ".").Output())(t)
	assert.LessOrEqual(t, len(strings.Fields(string(shown))), 8000, "detail of the engine belongs in docs/design/engine.md")
	assert.Contains(t, string(shown), "func New(")
	root := comments(t, ".")["package"]
	for _, name := range []string{"[New]", "[Client.Ping]", "[RateLimiter.WithRate]", "[RateLimiter.Allow]", "[RateLimiter.TryAcquire]", "[RateLimiter.Acquire]",
		"[ErrUnavailable]", "[WithOutageLimit]", "[WithOutagePolicy]"} {
		assert.True(t, strings.Contains(root, name), "the root does not lead to %s", name)
	}
	for _, dir := range publicPackages[1:] {
		assert.True(t, regexp.MustCompile(`\b`+filepath.Base(dir)+`\b`).MatchString(root), "the root does not lead to %s", dir)
	}
	// Each exported function of platform that returns a Profile or a Detector.
	text, found := comments(t, "httplimit/platform")["package"], 0
	for _, f := range exportedFuncs(t, "httplimit/platform") {
		if results := f.Type.Results; results != nil && len(results.List) == 1 {
			if s, ok := results.List[0].Type.(*ast.SelectorExpr); ok && (s.Sel.Name == "Profile" || s.Sel.Name == "Detector") {
				found++
				assert.True(t, strings.Contains(text, "["+f.Name.Name+"]"), f.Name.Name)
			}
		}
	}
	assert.Greater(t, found, 15)
}

// exportedFuncs returns the exported functions, without methods, of the package in dir.
func exportedFuncs(t *testing.T, dir string) (list []*ast.FuncDecl) {
	for _, path := range redistest.Must(filepath.Glob(filepath.Join(dir, "*.go")))(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, d := range redistest.Must(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t).Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() {
				list = append(list, f)
			}
		}
	}
	return list
}

// TestKindsAreListed checks that the comment of a type names each of its constants, if it has several: go doc shows only the first
// one of a group.
func TestKindsAreListed(t *testing.T) {
	found := 0
	for _, dir := range publicPackages {
		p, _ := documentation(t, dir)
		for _, typ := range p.Types {
			var names []string
			for _, group := range typ.Consts {
				for _, name := range group.Names {
					if ast.IsExported(name) {
						names = append(names, name)
					}
				}
			}
			if len(names) < 2 {
				continue
			}
			found++
			for _, name := range names {
				assert.True(t, strings.Contains(typ.Doc, "["+name+"]"), "%s: the comment of %s lacks [%s]", dir, typ.Name, name)
			}
		}
	}
	assert.Greater(t, found, 3)
}
