package redistest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/stretchr/testify/require"
)

var (
	scriptIndex = regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	scriptEntry = regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)\]   ?\S`)
)

// ScriptHeader checks that three things agree: the header of a script in the folder scripts of the tested package,
// the KEYS and ARGV of its body, and the numbers of both with which s is sent.
func ScriptHeader(t testing.TB, s *dispatch.Script) {
	t.Helper()
	src, err := os.ReadFile("scripts/" + s.Name + ".lua")
	require.NoError(t, err)
	require.Equal(t, string(src), s.Src)
	require.True(t, strings.HasPrefix(s.Src, "-- "+s.Name+": "), "the header names the script")

	head, body, ok := strings.Cut(s.Src, "\n\n")
	require.True(t, ok)
	documented := map[string]int{}
	for _, line := range strings.Split(head, "\n") {
		require.True(t, strings.HasPrefix(line, "--"), line)
		if m := scriptEntry.FindStringSubmatch(line); m != nil {
			documented[m[1]]++
			require.Equal(t, strconv.Itoa(documented[m[1]]), m[2], "in order, without gaps: %s", line)
		}
	}
	require.Contains(t, head, "\n-- Returns ")
	used := map[string]map[string]bool{"KEYS": {}, "ARGV": {}}
	for _, m := range scriptIndex.FindAllStringSubmatch(body, -1) {
		used[m[1]][m[2]] = true
	}
	for kind, n := range map[string]int{"KEYS": s.Keys, "ARGV": s.Args} {
		require.Equal(t, n, documented[kind], "%s in the header", kind)
		require.Len(t, used[kind], n, "%s in the body: %v", kind, used[kind])
		for i := 1; i <= n; i++ {
			require.True(t, used[kind][strconv.Itoa(i)], "%s[%d] is not used", kind, i)
		}
	}
}

var blockMarker = regexp.MustCompile(`^( *)-- \[([^\]]*)\]$`)

// SharedBlocks checks the blocks that several scripts in the folder scripts of the tested package have in common. A
// block stands between the lines
//
//	-- [name]
//	-- [end]
//
// and all blocks of one name have the same text, apart from indentation. Each name occurs at least twice, in one
// script or in several.
func SharedBlocks(t testing.TB) {
	t.Helper()
	files, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[file] = string(text)
	}
	require.NoError(t, sharedBlocks(texts))
}

// sharedBlocks returns an error that says what is wrong with the blocks of texts, a map from file names.
func sharedBlocks(texts map[string]string) error {
	type block struct {
		text, first string // where it occurs first
		count       int
	}
	blocks := map[string]*block{}
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		var name, indent, start string // of the open block
		var lines []string
		for i, line := range strings.Split(texts[file], "\n") {
			here := fmt.Sprintf("%s:%d", file, i+1)
			m := blockMarker.FindStringSubmatch(line)
			switch {
			case m == nil && name == "":
			case m == nil:
				rest, ok := strings.CutPrefix(line, indent)
				if !ok && line != "" {
					return fmt.Errorf("%s: the line stands left of the block %q that it is in", here, name)
				}
				lines = append(lines, rest)
			case m[2] != "end" && name != "":
				return fmt.Errorf("%s: the block %q begins in the block %q of %s", here, m[2], name, start)
			case m[2] != "end":
				name, indent, start, lines = m[2], m[1], here, nil
				if name == "" {
					return fmt.Errorf("%s: a block without a name", here)
				}
			case name == "":
				return fmt.Errorf("%s: the end of no block", here)
			default:
				text := strings.Join(lines, "\n")
				b := blocks[name]
				if b == nil {
					b = &block{text: text, first: start}
					blocks[name] = b
				}
				if text != b.text {
					return fmt.Errorf("%s: the block %q is not that of %s:\n%s\nand there\n%s", start, name, b.first, text, b.text)
				}
				b.count++
				name = ""
			}
		}
		if name != "" {
			return fmt.Errorf("%s: the block %q has no end", start, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		if blocks[name].count < 2 {
			return fmt.Errorf("%s: the block %q stands nowhere else", blocks[name].first, name)
		}
	}
	return nil
}
