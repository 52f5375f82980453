// SPDX-License-Identifier: Apache-2.0

package embedredis

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
)

// removeGlobals is Lua that runs before every script. It removes the functions by which a script could read the files of
// this process or write to its output: miniredis provides them, Redis does not. It has no line of its own, so that error
// messages name the right line of the script.
const removeGlobals = "loadfile=nil dofile=nil require=nil module=nil package=nil print=nil _printregs=nil "

// A guard prepends removeGlobals to every script that a client sends, so that the server never holds a script without it.
// Clients identify a script by the SHA-1 digest of what they sent, which the guard translates to the digest of what the
// server holds. SCRIPT LOAD returns the latter; EVALSHA accepts both.
type guard struct {
	mu      sync.Mutex
	digests map[string]string // maps the digest of what was sent to that of what the server holds
}

// before is the hook that miniredis calls before each command. It modifies the arguments in place and never handles the
// command itself.
func (g *guard) before(_ *server.Peer, cmd string, args ...string) (done bool) {
	switch {
	case len(args) == 0:
	case cmd == "EVAL", cmd == "EVAL_RO":
		args[0] = g.guarded(args[0])
	case cmd == "EVALSHA", cmd == "EVALSHA_RO":
		args[0] = g.digest(args[0])
	case cmd == "SCRIPT" && len(args) == 2 && strings.EqualFold(args[0], "LOAD"):
		args[1] = g.guarded(args[1])
	case cmd == "SCAN", cmd == "KEYS":
		for i := range args {
			if cmd == "KEYS" || i > 0 && strings.EqualFold(args[i-1], "MATCH") {
				args[i] = matchable(args[i])
			}
		}
	case cmd == "SCRIPT" && strings.EqualFold(args[0], "EXISTS"):
		for i := range args[1:] {
			args[1+i] = g.digest(args[1+i])
		}
	}
	return false
}

// matchable returns a pattern of keys that matches the same, and more where that has a byte that is not UTF-8 or a backslash: miniredis
// makes a regular expression of it, and panics where that is none.
func matchable(pattern string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(pattern, "*"), `\\`, "?")
}

func (g *guard) guarded(script string) string {
	out := removeGlobals + script
	g.mu.Lock()
	defer g.mu.Unlock()
	g.digests[sha1Hex(script)] = sha1Hex(out)
	return out
}

func (g *guard) digest(of string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d, ok := g.digests[strings.ToLower(of)]; ok {
		return d
	}
	return of
}

func sha1Hex(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}
