// SPDX-License-Identifier: Apache-2.0

package command

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDistance checks the words that differ in one place.
func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "ab", 0}, {"ab", "ba", 1}, {"abc", "ac", 1}, {"abc", "ADC", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3}} {
		require.Equal(t, c.want, Distance(c.a, c.b), "%q %q", c.a, c.b)
		require.Equal(t, c.want, Distance(c.b, c.a), "%q %q", c.b, c.a)
	}
}

func TestVersion(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	for _, c := range []struct {
		version, want string
	}{
		{"", "(devel) 0123456789ab"},
		{"v1.2.3", "v1.2.3 0123456789ab"},
		{"v0.0.0-20260101000000-0123456789ab", "v0.0.0-20260101000000-0123456789ab"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: []debug.BuildSetting{commit}}
		require.Equal(t, c.want, versionOf(info))
		release = "v1.2.3"
		require.Equal(t, "v1.2.3", versionOf(info))
		release = ""
	}
}
