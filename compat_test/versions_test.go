// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// classPaths is where prepare.sh leaves one file for each version: its jars, one on each line.
const (
	classPaths = "java/target/classpath"
	classes    = "java/target/classes"
	// newestDiffers is where a run writes what differs with an unlisted newest version: go test hides the output of a package that passes,
	// so the job that runs these tests prints this file. It is absent when nothing differed.
	newestDiffers = "java/target/newest-differs"
)

// A version is one version of Redisson in the matrix, with its jars.
type version struct {
	name string
	jars []string
	// newest marks a 4.x that Maven resolved at run time and that the matrix does not list. Where it differs, the run
	// reports that prominently and does not fail.
	newest bool
}

// allVersions is set by TestMain, oldest first.
var allVersions []version

var redissonJar = regexp.MustCompile(`/redisson-(\d[^/]*)\.jar$`)

// loadVersions reads the files of prepare.sh. It drops the newest version when the matrix lists it anyway.
func loadVersions() ([]version, error) {
	files, err := filepath.Glob(filepath.Join(classPaths, "*"))
	if err != nil {
		return nil, err
	}
	if len(files) < 2 {
		return nil, fmt.Errorf("no class paths in %s: run compat_test/prepare.sh", classPaths)
	}
	var listed []version
	var newest version
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		jars := strings.Fields(string(text))
		var found string
		for _, jar := range jars {
			if m := redissonJar.FindStringSubmatch(jar); m != nil {
				found = m[1]
			}
		}
		switch name := filepath.Base(file); {
		case name == "newest" && found != "":
			newest = version{name: found, jars: jars, newest: true}
		case name == found:
			listed = append(listed, version{name: name, jars: jars})
		default:
			return nil, fmt.Errorf("%s holds Redisson %q", file, found)
		}
	}
	slices.SortFunc(listed, func(a, b version) int { return compareVersions(a.name, b.name) })
	if newest.name != "" && !slices.ContainsFunc(listed, func(v version) bool { return v.name == newest.name }) {
		listed = append(listed, newest)
	}
	return listed, nil
}

func (v version) String() string { return v.name }

// since reports whether v is at least the release named.
func (v version) since(release string) bool { return compareVersions(v.name, release) >= 0 }

func compareVersions(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(version string) []int {
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		out = append(out, n)
	}
	return out
}

// eachVersion runs f as a subtest for every version for which want, if any, holds.
func eachVersion(t *testing.T, f func(t testing.TB, v version), want ...func(version) bool) {
	t.Helper()
	for _, v := range allVersions {
		if slices.ContainsFunc(want, func(w func(version) bool) bool { return !w(v) }) {
			continue
		}
		t.Run(v.name, func(t *testing.T) { onVersion(t, v, f) })
	}
}

// versionsAbreast does what eachVersion does, with all versions at once, for what sleeps most of the time.
func versionsAbreast(t *testing.T, f func(t testing.TB, v version), want ...func(version) bool) {
	t.Helper()
	var running sync.WaitGroup
	defer running.Wait()
	for _, v := range allVersions {
		if !slices.ContainsFunc(want, func(w func(version) bool) bool { return !w(v) }) {
			running.Go(func() { t.Run(v.name, func(t *testing.T) { onVersion(t, v, f) }) })
		}
	}
}

// onVersion runs f with a version. What fails with an unlisted newest one is reported in newestDiffers instead.
func onVersion(t *testing.T, v version, f func(t testing.TB, v version)) {
	t.Helper()
	if !v.newest {
		f(t, v)
		return
	}
	for _, text := range (&attempt{TB: t}).run(func(t testing.TB) { f(t, v) }) {
		t.Logf("THE NEWEST REDISSON DIFFERS: %s: %s", v, text)
		if file, err := os.OpenFile(newestDiffers, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			fmt.Fprintf(file, "%s: %s: %s\n", t.Name(), v, strings.Join(strings.Fields(text), " "))
			_ = file.Close()
		}
	}
}

// An attempt is a TB that keeps the failures of what it runs.
type attempt struct {
	testing.TB
	mu    sync.Mutex
	texts []string
}

// run runs f in a goroutine of its own, which FailNow can end, and returns its failures.
func (a *attempt) run(f func(t testing.TB)) []string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(a)
	}()
	<-done
	a.mu.Lock() // a goroutine that f left behind may still report something
	defer a.mu.Unlock()
	return slices.Clone(a.texts)
}

func (a *attempt) Error(args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.texts = append(a.texts, fmt.Sprint(args...))
}

func (a *attempt) Errorf(format string, args ...any) { a.Error(fmt.Sprintf(format, args...)) }
func (a *attempt) Fatal(args ...any)                 { a.Error(args...); runtime.Goexit() }
func (a *attempt) Fatalf(format string, args ...any) { a.Errorf(format, args...); runtime.Goexit() }
func (a *attempt) FailNow()                          { runtime.Goexit() } // assertions have said why

func every(version) bool { return true }

// listed returns the version of that name.
func listed(t testing.TB, name string) version {
	t.Helper()
	i := slices.IndexFunc(allVersions, func(v version) bool { return v.name == name })
	require.GreaterOrEqual(t, i, 0, "no version %s", name)
	return allVersions[i]
}

// family reports whether a version stands for those that write the same members, in a run of the short form. In the long
// form every version does.
func family(v version) bool {
	return longForm() || slices.Contains([]string{"3.13.4", "3.15.5", "3.16.8", "3.20.1", "4.7.0"}, v.name) || v.newest
}

// oldestAndNewest saves JVM starts where the versions between them do not differ.
func oldestAndNewest(v version) bool {
	return v.name == "3.15.5" || v.name == "4.7.0" || v.newest
}

// longForm reports whether this is a run of make compat-long.
func longForm() bool { return os.Getenv("RATELIMITER_COMPAT_LONG") != "" }

func from(release string) func(version) bool {
	return func(v version) bool { return v.since(release) }
}

// TestEveryVersionStarts checks that each version of the matrix runs, and which release added which operation.
func TestEveryVersionStarts(t *testing.T) {
	require.GreaterOrEqual(t, len(allVersions), 8)
	brought := []struct{ since, operations string }{
		{"3.13.4", "acquire acquireAsync availablePermits clearExpire delete expire expireAt getConfig getName isExists " +
			"remainTimeToLive setRate tryAcquire tryAcquireAsync trySetRate"},
		{"3.20.1", "expireAtIfGreater expireAtIfLess expireAtIfNotSet expireAtIfSet expireIfGreater expireIfLess " +
			"expireIfNotSet expireIfSet getExpireTime"},
		{"3.52.0", "keepAliveTime release tryAcquireDuration"},
		{"4.7.0", "setRateArgs updateRate"},
	}
	eachVersion(t, func(t testing.TB, v version) {
		p := fleet.peer(t, v)
		require.Len(t, p.id, 36)
		require.Equal(t, p.id, p.must(t, "id"))
		var want []string
		for _, b := range brought {
			if v.since(b.since) {
				want = append(want, strings.Fields(b.operations)...)
			}
		}
		require.ElementsMatch(t, want, strings.Fields(p.must(t, "operations")))
	})
}
