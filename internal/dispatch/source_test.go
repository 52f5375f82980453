// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestSource(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	files := fstest.MapFS{
		"scripts/a.lua":        file("-- a: does it.\n\nlocal x\ndo\n  --#use twice\nend\n--#use twice\nreturn x -- --#use is no use here\n"),
		"scripts/shared/twice": file("never"),
		"scripts/b.lua":        file("--#use nothing\n"),
	}
	files["scripts/shared/twice.lua"] = file("x = 1\n\nx = 2\n")
	require.Equal(t, "-- a: does it.\n\nlocal x\ndo\n  x = 1\n\n  x = 2\nend\nx = 1\n\nx = 2\nreturn x -- --#use is no use here\n", Source(files, "a"))
	require.PanicsWithError(t, "ratelimiter: the script b: open scripts/shared/nothing.lua: file does not exist", func() { Source(files, "b") })
	require.Panics(t, func() { Source(files, "c") })
}
