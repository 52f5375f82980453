// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

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
