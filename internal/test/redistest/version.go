// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Since skips t if the lane's server is older than a version, as in Since(t, 6, 2, "CLIENT UNPAUSE"), because what it
// names is not in such a server. It does nothing in the miniredis lane.
func Since(t testing.TB, major, minor int, what string) {
	t.Helper()
	if Lane() != miniLane && slices.Compare(version(t), []int{major, minor}) < 0 {
		t.Skipf("%s: %s is there since %d.%d", sinceMark, what, major, minor)
	}
}

// debugging returns args without the permission to use DEBUG, which a server before 7.0 always gives and cannot be told.
func debugging(t testing.TB, args []string) []string {
	if i := slices.Index(args, "--enable-debug-command"); i >= 0 && version(t)[0] < 7 {
		return slices.Delete(slices.Clone(args), i, i+2)
	}
	return args
}

// version returns the first two numbers of the version of the lane's server.
func version(t testing.TB) []int {
	t.Helper()
	return versionOf(binary(t))
}

var (
	versions  sync.Map // of []int by path
	versionIs = regexp.MustCompile(`v=(\d+)\.(\d+)`)
)

func versionOf(bin string) []int {
	if v, ok := versions.Load(bin); ok {
		return v.([]int)
	}
	said, _ := exec.Command(bin, "--version").Output()
	m := versionIs.FindSubmatch(said)
	if m == nil {
		panic("redistest: " + bin + " --version: " + string(said))
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	v := []int{major, minor}
	versions.Store(bin, v)
	return v
}
