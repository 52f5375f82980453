// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
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

	"go.yaml.in/yaml/v3"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A granter is a hook that takes the place of Redis. It grants everything, after a moment in which requests
// come that share the next call.
type granter struct{ redistest.Passing }

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

// grants gives cmd the reply that all of its requests were granted: of acquire, or of acquire_rest, which a check is. The
// "hello" of a pipeline and the "ping" of a probe get none.
func grants(cmd redis.Cmder) {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return
	}
	reply := []any{int64(0), int64(0), int64(0), int64(1 << 30), int64(1000), int64(0), int64(-1)}
	if args := cmd.Args(); args[1] == scripts.AcquireRest.Sha {
		reply = []any{int64(0), int64(0), "granted", args[3+3+2], "rate", int64(1 << 30), "interval", int64(1000)}
	}
	redistest.Reply(cmd, reply)
}

// On the path of a batch an acquire makes at most two allocations, and most acquires make none.
func TestBatchedAcquiresHardlyAllocate(t *testing.T) {
	redistest.NoRace(t, "it counts allocations")
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	rdb.AddHook(granter{})
	c := newClient(t, rdb, WithOutageLimit(time.Hour)) // the machine may stall
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

// An acquire that goes by itself makes four allocations: its command, the arguments, the member among them, and the reply that the
// caller keeps. A context that is not the background takes three more.
func TestAcquireByItselfHardlyAllocates(t *testing.T) {
	redistest.NoRace(t, "it counts allocations")
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	granted := []int64{0, 0, 0, 1 << 30, 1000, 0, -1}
	onCommands(rdb, func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		if x, ok := cmd.(dispatch.Integers); ok {
			x.SetVal(granted)
		} else {
			grants(cmd)
		}
		return nil
	})
	c := newClient(t, rdb, WithOutageLimit(time.Hour))
	defer c.Close()
	l, least := c.RateLimiter("allocs"), math.Inf(1) // of several: what else runs counts, too
	for range 10 {
		least = min(least, testing.AllocsPerRun(100, func() {
			if ok, err := l.TryAcquire(context.Background(), 1, 0); !ok || err != nil {
				t.Error(ok, err)
			}
		}))
	}
	require.LessOrEqual(t, least, 4.0)
}

// TestSharedFragments checks that what stands in scripts/shared is shared.
func TestSharedFragments(t *testing.T) { redistest.SharedFragments(t) }

// TestScriptHeaders checks that three things agree: the header of each script, the KEYS and ARGV in its body,
// and the numbers that the Go wrapper sends, which rejects a call with other numbers.
func TestScriptHeaders(t *testing.T) {
	files := must(filepath.Glob("scripts/*.lua"))(t)
	require.Len(t, allScripts(), len(files), "a script without a wrapper, or the other way round")

	for _, s := range allScripts() {
		t.Run(s.Name, func(t *testing.T) { redistest.ScriptHeader(t, s.Script) })
	}
}

// TestFewFramesAboveRedis checks how much of this module stands between a caller and go-redis: thirteen functions in the
// form of the README. The last three are in a goroutine of their own, so that a call can be left whose connection has vanished.
func TestFewFramesAboveRedis(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, rate := context.WithoutCancel(t.Context()), overall(10, time.Second)
		var stacks string
		onScripts(rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			text := make([]byte, 1<<20)
			stacks = string(text[:runtime.Stack(text, true)])
			return next(ctx, cmd)
		})
		c := newClient(t, rdb)
		name := redistest.Key(t)
		for range 2 { // the first call sets the rate
			require.NoError(t, c.RateLimiter(name).WithRate(rate).Acquire(ctx, 1))
		}
		ours := func(of string) (functions []string) {
			for stack := range strings.SplitSeq(stacks, "\n\n") {
				if !strings.Contains(stack, of) {
					continue
				}
				for line := range strings.Lines(stack) {
					name, ok := strings.CutPrefix(line, "github.com/goredisson/ratelimiter")
					if ok && !strings.HasPrefix(name, "/internal/test/redistest.") && !strings.Contains(name, t.Name()) && !strings.Contains(name, "onScripts") {
						functions = append(functions, name)
					}
				}
			}
			return functions
		}
		sends, waits := ours("dispatch.(*Script).send("), ours("RateLimiter).Acquire(")
		require.NotEmpty(t, sends)
		require.NotEmpty(t, waits)
		require.LessOrEqual(t, len(sends), 3, "%v", sends)
		require.LessOrEqual(t, len(sends)+len(waits), 13, "%v %v", sends, waits)
	})
}

// TestRoomsKnowOnlyWhatTheyMay checks the imports of the internal packages, each of which is listed with the
// others that it may link. The package that waits knows no Redis, and the package that knows Redis does not
// know the one that waits; only dispatch and redisson link go-redis.
func TestRoomsKnowOnlyWhatTheyMay(t *testing.T) {
	for room, may := range map[string]struct {
		rooms []string
		redis bool
	}{
		"internal/retry":        {},
		"internal/stack":        {},
		"internal/permit":       {rooms: []string{"internal/retry"}},
		"internal/wire":         {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/outage":       {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/link":         {rooms: []string{"internal/outage", "internal/permit", "internal/retry"}},
		"internal/engine":       {rooms: []string{"internal/engine/fair", "internal/engine/known", "internal/link", "internal/outage", "internal/permit", "internal/retry", "internal/stack"}},
		"internal/engine/list":  {rooms: []string{"internal/engine", "internal/engine/fair", "internal/engine/known", "internal/link", "internal/outage", "internal/permit", "internal/retry", "internal/stack"}},
		"internal/engine/known": {rooms: []string{"internal/link", "internal/outage", "internal/permit", "internal/retry"}},
		"internal/engine/fair":  {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/dispatch":     {rooms: []string{"internal/retry", "internal/stack"}, redis: true},
		"internal/redisson":     {rooms: []string{"internal/dispatch", "internal/permit", "internal/retry", "internal/stack"}, redis: true},
	} {
		ours, redis := redistest.Rooms(t, "./"+room)
		require.ElementsMatch(t, append(may.rooms, room), ours, room)
		require.Equal(t, may.redis, redis, "%s and go-redis", room)
	}
}

// TestFloors checks that what is not a test imports only its own floor and those below: the limiter knows nothing of what
// operators' tools, HTTP or tests need.
func TestFloors(t *testing.T) {
	const module = "github.com/goredisson/ratelimiter/"
	above := map[string][]string{ // the floors above that of the limiter, and who is on them
		"internal/ops/":  {"internal/ops/", "ratelimiterpage"},
		"internal/http/": {"internal/http/", "httplimit"},
		"internal/test/": {"internal/test/"},
	}
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}{{range .Imports}} {{.}}{{end}}", "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	within := map[string]int{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from := strings.TrimPrefix(fields[0], module)
		for _, to := range fields[1:] {
			for floor, rooms := range above {
				if strings.HasPrefix(to, module+floor) {
					within[floor]++
					require.True(t, slices.ContainsFunc(rooms, func(r string) bool { return strings.HasPrefix(from, r) }), "%s imports %s", from, to)
				}
			}
		}
	}
	require.Len(t, within, len(above), "each floor is used")
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

// TestImportersGetLittle checks that programs which import a package link no more of this module than it is made of, and
// neither the CLI library nor miniredis nor testify. The transport knows neither platforms nor the middleware, the middleware
// neither the transport nor platforms, and the YAML parser comes with package rulefile alone.
func TestImportersGetLittle(t *testing.T) {
	within := func(list ...string) (paths []string) {
		for _, p := range list {
			paths = append(paths, "httplimit/"+p)
		}
		return append(paths, "limit", "limit/internal/calls")
	}
	transport := append(within("internal/envelope", "internal/guard", "internal/keyname"), "httplimit", "internal/http/authority", "internal/http/muxpattern", "internal/http/rates")
	platform := slices.Concat(transport, within("platform", "internal/stream"))
	for pkg, ours := range map[string][]string{
		"": nil, "limit": within(), "httplimit": transport, "httplimit/platform": platform,
		"httplimit/inbound":     append(within("inbound", "internal/guard", "internal/keyname"), "internal/http/rates"),
		"internal/http/gateway": append(slices.Clone(transport), "internal/http/gateway"),
		"httplimit/rulefile":    slices.Concat(platform, within("rulefile"), []string{"internal/http/textfile"}),
	} {
		found := redistest.Strangers(t, "./"+pkg, slices.Concat(redistest.Core, ours)...)
		if pkg == "httplimit/rulefile" {
			require.NotEmpty(t, found)
			found = slices.DeleteFunc(found, func(p string) bool { return strings.HasSuffix(p, " of go.yaml.in/yaml/v3") })
		}
		require.Empty(t, found, pkg)
	}
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
		// What httplimit/rulefile needs to read files, and testify and go.uber.org/atomic name anyway.
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

// TestAPI compares the exported names of each public package with its testdata/api.txt, which `make api` writes.
func TestAPI(t *testing.T) { redistest.API(t) }

// TestRootIsSmall checks that root stays a package whose files a reader can know: 20 of code and 20 of tests.
func TestRootIsSmall(t *testing.T) {
	all, tests := must(filepath.Glob("*.go"))(t), must(filepath.Glob("*_test.go"))(t)
	require.LessOrEqual(t, len(tests), 20)
	require.LessOrEqual(t, len(all)-len(tests), 20)
}

// TestWorkflowsRunWhatMakeRuns checks that a workflow runs nothing but targets of the Makefile, lanes that exist, and actions that
// are pinned to a commit.
func TestWorkflowsRunWhatMakeRuns(t *testing.T) {
	makefile := must(os.ReadFile("Makefile"))(t)
	script := must(os.ReadFile("tools/test-lanes.sh"))(t)
	lanes := strings.Fields(regexp.MustCompile(`(?m)^lanes="(.*)"$`).FindStringSubmatch(string(script))[1])
	call := regexp.MustCompile(`^make ([a-z-]+)(?: LANES="([a-z ]+)")?(?: [A-Z]+=[a-z0-9]+)*$`)
	files := must(filepath.Glob(".github/workflows/*.yml"))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		text := must(os.ReadFile(file))(t)
		var workflow struct {
			Jobs map[string]struct{ Steps []struct{ Run, Uses string } }
		}
		require.NoError(t, yaml.Unmarshal(text, &workflow), file)
		calls := 0
		for _, job := range workflow.Jobs {
			for _, step := range job.Steps {
				if step.Uses != "" { // a tag can be moved, a commit cannot
					require.Regexp(t, `uses: `+regexp.QuoteMeta(step.Uses)+` # v\d+\.\d+\.\d+\n`, string(text), file)
					require.Regexp(t, `@[0-9a-f]{40}$`, step.Uses, file)
				}
				if step.Run == "" {
					continue
				}
				calls++
				m := call.FindStringSubmatch(step.Run)
				require.NotNil(t, m, "%s runs %q, which is no call of make", file, step.Run)
				require.Regexp(t, `(?m)^`+m[1]+`: `, string(makefile), file)
				for _, lane := range strings.Fields(m[2]) {
					require.True(t, slices.Contains(lanes, lane), "%s: there is no lane %s", file, lane)
				}
			}
		}
		require.NotZero(t, calls, file)
	}
}

// TestScriptsStopWithoutADirectory checks that no script of tools goes on if it gets no temporary directory, as on a full disk:
// what it then deletes below an empty name is below the root of the machine.
func TestScriptsStopWithoutADirectory(t *testing.T) {
	n := 0
	for _, dir := range []string{"tools", "benchmarks", "compat_test", ".ci"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".sh" && filepath.Base(path) != "run" {
				return err
			}
			for line := range strings.Lines(string(redistest.Must(os.ReadFile(path))(t))) {
				if strings.Contains(line, "$(mktemp") {
					n++
					require.Contains(t, line, ") || exit 1", path)
				}
			}
			return nil
		}))
	}
	require.GreaterOrEqual(t, n, 7)
}
