// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// loaded are the scripts of this program.
var loaded []*Script

// Load returns the script scripts/NAME.lua of files, which takes the given numbers of keys and arguments. Call it
// while the packages of the program are initialized.
func Load(files fs.FS, name string, keys, args int) *Script {
	s := New(name, Source(files, name), keys, args)
	loaded = append(loaded, s)
	return s
}

// Loaded returns the scripts that this program may send, in the order in which they were loaded.
func Loaded() []*Script { return slices.Clone(loaded) }

// use begins a line that includes a fragment: the text of a file that several scripts have in common.
const use = "--#use "

// Source returns the text of the script scripts/NAME.lua of files in the form in which it is sent. Each line "--#use
// name" is replaced by the file scripts/shared/name.lua, indented as the line is. A fragment may use others.
//
// Source panics if a file is missing, because the files are part of the program.
func Source(files fs.FS, name string) string {
	var out strings.Builder
	var add func(path, indent string)
	add = func(path, indent string) {
		text, err := fs.ReadFile(files, path)
		if err != nil {
			panic(fmt.Errorf("ratelimiter: the script %s: %w", name, err))
		}
		for line := range strings.Lines(string(text)) {
			inner, fragment, ok := strings.Cut(line, use)
			switch {
			case ok && strings.Trim(inner, " ") == "":
				add("scripts/shared/"+strings.TrimSpace(fragment)+".lua", indent+inner)
				continue
			case strings.HasPrefix(line, "-- SPDX-"):
				continue // Redis need not keep it
			case line != "\n":
				out.WriteString(indent)
			}
			out.WriteString(line)
		}
	}
	add("scripts/"+name+".lua", "")
	return out.String()
}
