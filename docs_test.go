package ratelimiter_test

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestDocsCompile vets every Go block of the README and the docs. Each is a whole file, or consists of
// statements that have ctx, rdb, client, limiter and the imports that they use.
func TestDocsCompile(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "it compiles")
	dir, err := os.MkdirTemp(".", "_docs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	blocks := 0
	var packages []string
	for _, f := range pages(t) {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range goBlock.FindAllStringSubmatch(string(text), -1) {
			blocks++
			src := m[1]
			if !strings.Contains(src, "package ") {
				src = fmt.Sprintf(docsFrame, src)
			}
			_, err := format.Source([]byte(src))
			require.NoError(t, err, "%s:\n%s", f, src)
			pkg := filepath.Join(dir, fmt.Sprintf("b%d", blocks))
			require.NoError(t, os.Mkdir(pkg, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(pkg, "x.go"), []byte(src), 0o600))
			packages = append(packages, "./"+pkg)
		}
	}
	require.Greater(t, blocks, 3)
	out, err := exec.Command("go", append([]string{"vet"}, packages...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const docsFrame = `package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
)

var sdk struct{ HTTPClient *http.Client }

var (
	_ = errors.Is
	_ = httplimit.New
	_ = limit.NewShared
	_ = platform.DingTalk
	_ = fmt.Println
	_ = time.Second
)

func main() {}

func block(ctx context.Context, rdb *redis.Client, client *ratelimiter.Client, limiter *ratelimiter.RateLimiter) error {
	return func() error {
		%s
		return nil
	}()
}
`

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// pages returns the pages that the tests below check.
func pages(t *testing.T) (files []string) {
	for _, dir := range []string{"docs", "docs/design", "docs/zh"} {
		in, err := filepath.Glob(dir + "/*.md")
		require.NoError(t, err)
		files = append(files, in...)
	}
	return append(files, "README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md")
}

// TestDocsAnchors checks that each link to a part of a page names a heading or an anchor of that page.
func TestDocsAnchors(t *testing.T) {
	heading, anchor := regexp.MustCompile(`(?m)^#+ (.*)$`), regexp.MustCompile(`<a id="([^"]+)">`)
	gone, toPart := regexp.MustCompile(`[^\p{L}\p{N}_ -]`), regexp.MustCompile(`\]\(([^)#:]*)#([^)]*)\)`)
	parts := func(path string) map[string]bool {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all := map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			all[strings.ReplaceAll(gone.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
		for _, m := range anchor.FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = true
		}
		return all
	}
	links := 0
	for _, f := range pages(t) {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range toPart.FindAllStringSubmatch(string(text), -1) {
			links++
			page := f
			if m[1] != "" {
				page = filepath.Join(filepath.Dir(f), m[1])
			}
			require.True(t, parts(page)[m[2]], "%s links to %s#%s", f, m[1], m[2])
		}
	}
	require.Greater(t, links, 20)
}

// TestDocsLinks follows every relative link of the README and the docs.
func TestDocsLinks(t *testing.T) {
	links := 0
	for _, f := range pages(t) {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			links++
			_, err := os.Stat(filepath.Join(filepath.Dir(f), m[1]))
			require.NoError(t, err, "%s links to %s", f, m[1])
		}
	}
	require.Greater(t, links, 10)
}

// TestReadmesAreEqual checks that the two READMEs have the same commands, code and links.
func TestReadmesAreEqual(t *testing.T) {
	fence := regexp.MustCompile("(?s)```.*?```")
	read := func(name string) (text string) {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(b)
	}
	en, zh := read("README.md"), read("README.zh-CN.md")
	require.Equal(t, fence.FindAllString(en, -1), fence.FindAllString(zh, -1))
	targets := func(text string) (list []string) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(m[1], "README") {
				list = append(list, m[1])
			}
		}
		return list
	}
	require.Equal(t, targets(en), targets(zh))
	require.Equal(t, strings.Count(en, "\n## "), strings.Count(zh, "\n## "))

	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	code := goBlock.FindStringSubmatch(en)[1]
	for _, line := range strings.Split(code, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "import") || strings.Contains(line, "localhost") {
			continue
		}
		require.Contains(t, string(example), line, "the README's example is a tested one")
	}
}
