package dispatch

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// loaded are the scripts of this program.
var loaded []*Script

// Load returns the script scripts/NAME.lua of files, which takes that many keys and arguments. It is called while the packages
// of the program are initialized.
func Load(files fs.FS, name string, keys, args int) *Script {
	s := New(name, Source(files, name), keys, args)
	loaded = append(loaded, s)
	return s
}

// Loaded returns the scripts that this program may send, in the order in which they were loaded.
func Loaded() []*Script { return slices.Clone(loaded) }

// use begins a line that stands for a fragment, the text of a file of its own that several scripts have in common.
const use = "--#use "

// Source returns the text of the script of that name in the folder scripts of files, as it is sent. Each line "--#use name"
// is replaced by the file scripts/shared/name.lua, indented as the line is. A fragment uses no other.
//
// Source panics if a file is not there, since the files are part of the program.
func Source(files fs.FS, name string) string {
	read := func(path string) string {
		text, err := fs.ReadFile(files, path)
		if err != nil {
			panic(fmt.Errorf("ratelimiter: the script %s: %w", name, err))
		}
		return string(text)
	}
	var out strings.Builder
	for line := range strings.Lines(read("scripts/" + name + ".lua")) {
		indent, fragment, ok := strings.Cut(line, use)
		if !ok || strings.Trim(indent, " ") != "" {
			out.WriteString(line)
			continue
		}
		for line := range strings.Lines(read("scripts/shared/" + strings.TrimSpace(fragment) + ".lua")) {
			if line != "\n" {
				out.WriteString(indent)
			}
			out.WriteString(line)
		}
	}
	return out.String()
}
