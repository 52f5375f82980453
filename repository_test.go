package ratelimiter

import (
	"context"
	"fmt"
	"go/format"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
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

// A granter is a hook that takes the place of Redis. It grants everything, after a moment in which requests
// come that share the next call.
type granter struct{ commandHook }

func (granter) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		time.Sleep(100 * time.Microsecond)
		grants(cmd)
		return nil
	}
}

func (g granter) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			grants(cmd)
		}
		time.Sleep(100 * time.Microsecond)
		return nil
	}
}

// grants gives cmd the reply that all of its requests were granted: of acquire, or of acquire_rest, which a check is.
func grants(cmd redis.Cmder) {
	reply := []any{int64(0), int64(0), int64(0), int64(1 << 30), int64(1000), int64(0), int64(-1)}
	if args := cmd.Args(); args[1] == scripts.AcquireRest.Sha {
		zero := int64(0)
		reply = []any{zero, args[3+3+2], zero, zero, zero, int64(1 << 30), int64(1000), zero, zero, zero, zero, zero, zero, zero}
	}
	cmd.(dispatch.OnceCmd).SetVal(reply)
}

// On the path of a batch an acquire makes at most two allocations, and most acquires make none.
func TestBatchedAcquiresHardlyAllocate(t *testing.T) {
	redistest.NoRace(t, "it counts allocations")
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	rdb.AddHook(granter{})
	c := newClient(t, rdb)
	defer c.Close()
	const callers, each = 256, 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	work := func() {
		var wg sync.WaitGroup
		for i := range callers {
			l := c.RateLimiter("allocs")
			wg.Go(func() {
				for range each {
					ok, err := l.TryAcquire(ctx, 1, time.Duration(i%2)*time.Minute)
					if !ok || err != nil {
						t.Error(ok, err)
					}
				}
			})
		}
		wg.Wait()
	}
	work()               // fills the pools
	least := math.Inf(1) // of three: on a busy machine fewer share a batch, and a collection empties the pools
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		work()
		runtime.ReadMemStats(&after)
		an := float64(after.Mallocs-before.Mallocs) / (callers * each)
		t.Logf("%.3f allocations an acquire", an)
		least = min(least, an)
	}
	require.LessOrEqual(t, least, 2.0)
}

// TestSharedFragments checks that what stands in scripts/shared is shared.
func TestSharedFragments(t *testing.T) { redistest.SharedFragments(t) }

// TestScriptHeaders checks that three things agree: the header of each script, the KEYS and ARGV in its body,
// and the numbers that the Go wrapper sends, which rejects a call with other numbers.
func TestScriptHeaders(t *testing.T) {
	files, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	require.Len(t, allScripts(), len(files), "a script without a wrapper, or the other way round")

	for _, s := range allScripts() {
		t.Run(s.Name, func(t *testing.T) { redistest.ScriptHeader(t, s.Script) })
	}
}

// TestRoomsKnowOnlyWhatTheyMay checks the imports of the internal packages, each of which is listed with the
// others that it may link. The package that waits knows no Redis, and the package that knows Redis does not
// know the one that waits; only dispatch and redisson link go-redis.
func TestRoomsKnowOnlyWhatTheyMay(t *testing.T) {
	for room, may := range map[string]struct {
		rooms []string
		redis bool
	}{
		"internal/retry":       {},
		"internal/permit":      {rooms: []string{"internal/retry"}},
		"wire":                 {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/outage":      {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/engine":      {rooms: []string{"internal/engine/fair", "internal/outage", "internal/permit", "internal/retry"}},
		"internal/engine/list": {rooms: []string{"internal/engine", "internal/engine/fair", "internal/outage", "internal/permit", "internal/retry"}},
		"internal/engine/fair": {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/dispatch":    {rooms: []string{"internal/retry"}, redis: true},
		"internal/redisson":    {rooms: []string{"internal/dispatch", "internal/permit", "internal/retry"}, redis: true},
	} {
		ours, redis := redistest.Rooms(t, "./"+room)
		require.ElementsMatch(t, append(may.rooms, room), ours, room)
		require.Equal(t, may.redis, redis, "%s and go-redis", room)
	}
}

// TestOutagesTestsKnowNoRedis checks that the tests of outages do not link go-redis. Those of redisson do, which shows
// that the look would find it.
func TestOutagesTestsKnowNoRedis(t *testing.T) {
	for room, want := range map[string]bool{"internal/outage": false, "internal/redisson": true} {
		ours, redis := redistest.Rooms(t, "-test", "./"+room)
		require.Contains(t, ours, room)
		require.Equal(t, want, redis, room)
	}
}

// TestImportersGetLittle checks that programs which import the root package do not link the CLI library,
// miniredis, testify or our other internal packages.
func TestImportersGetLittle(t *testing.T) {
	require.Empty(t, redistest.Strangers(t, ".", redistest.Core...))
}

// TestImportersGetLittleCanFail applies the same check to an internal package, and finds what the root must not
// link. The test of this name in cmd/rrl checks the command.
func TestImportersGetLittleCanFail(t *testing.T) {
	found := strings.Join(redistest.Strangers(t, "./internal/embedredis", redistest.Core...), "\n")
	for _, want := range []string{"miniredis", "/internal/embedredis"} {
		require.Contains(t, found, want)
	}
}

// TestImportersModuleGraph checks the module graph of an importer: the modules of which a program that imports
// the root package needs a version, whether or not it links them. Each list below is headed by the reason for
// its modules; a new module is a cost for every importer.
func TestImportersModuleGraph(t *testing.T) {
	want := slices.Concat(
		[]string{"importer", "github.com/goredisson/ratelimiter"},
		// What the library needs.
		[]string{"github.com/redis/go-redis/v9", "github.com/google/uuid"},
		// What go-redis links.
		[]string{"github.com/cespare/xxhash/v2", "go.uber.org/atomic"},
		// What httplimit/rulefile needs to read files.
		[]string{"go.yaml.in/yaml/v3"},
		// What our tests need, because they belong to the module.
		[]string{"github.com/alicebob/miniredis/v2", "github.com/yuin/gopher-lua",
			"github.com/stretchr/testify", "pgregory.net/rapid"},
	)
	require.Len(t, want, 11)
	require.ElementsMatch(t, want, redistest.ImportersModules(t), "of one that imports no package yet")

	// As soon as a package is imported, go-redis is in the go.mod of the importer itself, and everything that
	// go-redis requires counts, including what its tests need. Only an older go-redis has less.
	want = append(want, "github.com/bsm/ginkgo/v2", "github.com/bsm/gomega",
		"github.com/klauspost/cpuid/v2", "github.com/zeebo/xxh3", "golang.org/x/sys")
	require.ElementsMatch(t, want, redistest.ImportersModules(t, "github.com/goredisson/ratelimiter"))
}

// TestAPI compares the exported names with testdata/api.txt, which `make api` writes.
func TestAPI(t *testing.T) { redistest.API(t) }

// TestAPIOfEveryPackage checks that no package which others can import lacks a TestAPI.
func TestAPIOfEveryPackage(t *testing.T) {
	redistest.NoServer(t)
	out, err := exec.Command("go", "list", "-f", "{{if .GoFiles}}{{.Dir}} {{.Name}}{{end}}", "./...").Output()
	require.NoError(t, err)
	checked := 0
	for line := range strings.Lines(string(out)) {
		dir, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "main" || strings.Contains(dir+"/", "/internal/") {
			continue
		}
		tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(tests, func(f string) bool {
			text, err := os.ReadFile(f)
			return err == nil && strings.Contains(string(text), "redistest.API(t)")
		}), dir)
		checked++
	}
	require.GreaterOrEqual(t, checked, 7)
}
