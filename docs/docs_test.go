// SPDX-License-Identifier: Apache-2.0

// Package docs has no code. Its tests check the pages: that code compiles, commands run, links lead somewhere, names and
// figures exist, and translations have what the originals have.
package docs

import (
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil { // the paths below, like those in the pages, begin at the root of the module
		panic(err)
	}
	redistest.Main(m)
}

// pages returns the texts of all pages by their paths.
func pages(t *testing.T) map[string]string {
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/design/*.md", "docs/zh/*.md"} {
		files := redistest.Must(filepath.Glob(pattern))(t)
		for _, f := range files {
			text := redistest.Must(os.ReadFile(f))(t)
			texts[f] = string(text)
		}
	}
	require.Greater(t, len(texts), 20)
	return texts
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestCodeCompiles vets every Go block. Each is a whole file, or statements that may use the packages and variables of
// the frame.
func TestCodeCompiles(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "it compiles")
	dir := redistest.Must(os.MkdirTemp(".", "_docs"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	seen := map[string]bool{}
	var packages []string
	for f, text := range pages(t) {
		for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
			src := m[1]
			if seen[src] { // in a translation
				continue
			}
			seen[src] = true
			if !strings.Contains(src, "package ") {
				src = fmt.Sprintf(frame, src)
			}
			_, err := format.Source([]byte(src))
			require.NoError(t, err, "%s:\n%s", f, src)
			name := "x.go"
			if strings.Contains(src, "testing.T") {
				name = "x_test.go"
			}
			pkg := filepath.Join(dir, fmt.Sprintf("%s-%d", filepath.Base(f), len(seen)))
			require.NoError(t, os.Mkdir(pkg, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(pkg, name), []byte(src), 0o600))
			packages = append(packages, "./"+pkg)
		}
	}
	require.Greater(t, len(packages), 20)
	out, err := exec.Command("go", append([]string{"vet"}, packages...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const frame = `package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
)

var (
	_ = []any{context.Background, errors.Is, fmt.Println, log.Fatal, slog.Default, netip.ParsePrefix, os.Getenv, time.Second}
	_ = []any{httplimit.New, inbound.New, limit.NewShared, platform.DingTalk, redis.NewClient, tls.Config{}}

	sdk struct{ HTTPClient *http.Client }
	mux *http.ServeMux
	ctx context.Context
	rdb *redis.Client

	client  *ratelimiter.Client
	limiter *ratelimiter.RateLimiter
)

func main() {}

func block() error {
	%s
	return nil
}
`

var (
	link    = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	fence   = regexp.MustCompile("(?s)```.*?```")
)

// TestLinks follows every relative link, also to a heading or an anchor of a page, and checks that the map of the pages
// leads to all of them.
func TestLinks(t *testing.T) {
	all := pages(t)
	gone := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	parts := func(path string) map[string]bool {
		names := map[string]bool{}
		text := fence.ReplaceAllString(all[path], "")
		for _, m := range heading.FindAllStringSubmatch(text, -1) {
			names[strings.ReplaceAll(gone.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
		for _, m := range anchor.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
		return names
	}
	mapped := map[string]bool{"README.md": true, "README.zh-CN.md": true, "docs/README.md": true}
	for f, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := f
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(f), m[1])
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", f, target)
			require.True(t, m[2] == "" || parts(target)[m[2]], "%s links to %s#%s", f, target, m[2])
			mapped[target] = mapped[target] || f == "docs/README.md" || f == "docs/zh/README.md"
		}
	}
	for f := range all {
		require.True(t, mapped[f] || !strings.HasPrefix(f, "docs/"), "docs/README.md does not lead to %s", f)
	}
}

// TestNames checks that what the pages and the comments call an exported name of this library, or a member of an exported type,
// is one.
func TestNames(t *testing.T) {
	exported, members, whole := map[string]bool{}, map[string]map[string]bool{}, ""
	for pkg, dir := range map[string]string{"ratelimiter": ".", "limit": "limit", "httplimit": "httplimit", "inbound": "httplimit/inbound",
		"platform": "httplimit/platform", "rulefile": "httplimit/rulefile", "ratelimiterpage": "ratelimiterpage", "grpclimit": "grpclimit", "ratelimitertest": "ratelimitertest"} {
		api := redistest.Must(os.ReadFile(filepath.Join(dir, "testdata/api.txt")))(t)
		whole += string(api)
		for _, m := range regexp.MustCompile(`(?m)^(?:const|var|func|type) ([A-Z]\w*)`).FindAllStringSubmatch(string(api), -1) {
			exported[pkg+"."+m[1]], exported[m[1]] = true, true
		}
		for _, m := range regexp.MustCompile(`(?m)^(?:method \(\*?|type )([A-Z]\w*)(?:\[.*?\])?(?:\)| struct,| interface,) (?:embedded .*\.)?([A-Z]\w*)`).FindAllStringSubmatch(string(api), -1) {
			if members[m[1]] == nil {
				members[m[1]] = map[string]bool{}
			}
			members[m[1]][m[2]] = true
		}
	}
	qualified := regexp.MustCompile(`\b(ratelimiter|limit|httplimit|inbound|platform|rulefile|ratelimiterpage|ratelimitertest|grpclimit)\.([A-Z]\w*)`)
	bare := regexp.MustCompile(`\b(?:With|Err)[A-Z]\w*`)
	member := regexp.MustCompile(`(?:^|[^\w.]|\b(?:ratelimiter|limit|httplimit|inbound|platform|rulefile)\.)([A-Z]\w*)\.([A-Z]\w*)\b`)
	foreign := []string{"RateType.OVERALL", "RateType.PER_CLIENT", "Response.Error", "Error.Code"} // Redisson's, and the JSON of clouds
	looked := 0
	areMembers := func(where, text string) {
		for _, m := range member.FindAllStringSubmatch(text, -1) {
			if of := members[m[1]]; of != nil && !slices.Contains(foreign, m[1]+"."+m[2]) {
				looked++
				assert.True(t, of[m[2]], "%s: %s.%s", where, m[1], m[2])
			}
		}
	}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.Contains(path, "internal/") { // whose types have names of their own
			for _, c := range regexp.MustCompile(`(?m)//.*$`).FindAllString(string(redistest.Must(os.ReadFile(path))(t)), -1) {
				areMembers(path, c)
			}
		}
		return err
	}))
	require.Greater(t, looked, 50)
	for f, text := range pages(t) {
		if f == "CHANGELOG.md" || filepath.Base(f) == "sdks.md" { // which have names of the past, and of others
			continue
		}
		for _, span := range regexp.MustCompile("`[^`\n]+`").FindAllString(fence.ReplaceAllString(text, ""), -1) {
			for _, m := range qualified.FindAllString(span, -1) {
				require.True(t, exported[m], "%s: %s", f, m)
			}
			areMembers(f, strings.Trim(span, "`"))
			for _, m := range bare.FindAllString(span, -1) {
				require.True(t, exported[m] || strings.Contains(whole, m), "%s: %s", f, m)
			}
		}
	}
}

// TestTranslations checks that each Chinese page has the headings, tables, code and links of the English one, and links to
// Chinese pages where there are some.
func TestTranslations(t *testing.T) {
	all := pages(t)
	translated := map[string]string{"README.md": "README.zh-CN.md"}
	for f := range all {
		if strings.HasPrefix(f, "docs/zh/") {
			translated["docs/"+filepath.Base(f)] = f
		}
	}
	level, row := regexp.MustCompile(`(?m)^#+ `), regexp.MustCompile(`(?m)^\|.*\|$`)
	spoken := regexp.MustCompile(`"[^"]*"|: .*`) // in a diagram
	code := func(text string) []string {
		blocks := fence.FindAllString(text, -1)
		for i, b := range blocks {
			if strings.HasPrefix(b, "```mermaid") {
				blocks[i] = spoken.ReplaceAllString(b, "…")
			}
		}
		return blocks
	}
	for en, zh := range translated {
		require.Equal(t, code(all[en]), code(all[zh]), "the code of %s", zh)
		require.Equal(t, level.FindAllString(all[en], -1), level.FindAllString(all[zh], -1), "the headings of %s", zh)
		cells := func(f string) (list []int) {
			for _, r := range row.FindAllString(all[f], -1) {
				list = append(list, strings.Count(r, "|")-strings.Count(r, `\|`))
			}
			return list
		}
		require.Equal(t, cells(en), cells(zh), "the cells of the tables of %s", zh)
		targets := func(f string) (list []string) {
			for _, m := range link.FindAllStringSubmatch(all[f], -1) {
				target := f
				if m[1] != "" {
					target = filepath.Join(filepath.Dir(f), m[1])
				}
				for from, to := range translated {
					if f == zh && target == from && en != from {
						t.Errorf("%s links to %s, of which there is %s", f, from, to)
					}
					if target == to {
						target = from
					}
				}
				if target != en { // the link to the other language
					list = append(list, target)
				}
			}
			slices.Sort(list)
			return list
		}
		require.Equal(t, targets(en), targets(zh), "the links of %s", zh)
	}
}

// TestChineseLinksToEnglishAreMarked checks that a Chinese page says of each link whether it leads to an English page, and calls what
// is granted and what the doctor finds by the words that Chinese engineers use.
func TestChineseLinksToEnglishAreMarked(t *testing.T) {
	marked, named := 0, regexp.MustCompile(`\[([^\]]*)\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)`)
	for f, text := range pages(t) {
		if f != "README.zh-CN.md" && !strings.HasPrefix(f, "docs/zh/") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target := filepath.Join(filepath.Dir(f), m[2])
			english := target != "README.zh-CN.md" && !strings.HasPrefix(target, "docs/zh/") && m[1] != "English"
			require.Equal(t, english, strings.HasSuffix(m[1], "（英文）"), "%s: %s", f, m[0])
			if english {
				marked++
			}
		}
		for _, word := range []string{"授予", "体检"} {
			require.NotContains(t, text, word, f)
		}
	}
	require.Greater(t, marked, 20)
}

// TestErrorsAreExplained checks that troubleshooting has each error of the library, by its text.
func TestErrorsAreExplained(t *testing.T) {
	page := pages(t)["docs/troubleshooting.md"]
	for _, err := range []error{ratelimiter.ErrNotInitialized, ratelimiter.ErrPermitsExceedRate, ratelimiter.ErrInvalidArgument, ratelimiter.ErrNameNotClusterSafe,
		ratelimiter.ErrClosed, ratelimiter.ErrUnavailable, ratelimiter.ErrMalformed, ratelimiter.ErrConflict, ratelimiter.ErrSettled, httplimit.ErrRejected} {
		require.Contains(t, page, "| `"+strings.TrimPrefix(err.Error(), "ratelimiter: ")+"` |")
	}
}
