// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"crypto/sha1" //nolint:gosec // EVALSHA's, not ours
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A recorder keeps every command that clients of a proxy in front of a Redis send, labelled with the operation under
// way. Tests obtain Redisson's scripts this way: none is kept in this repository.
//
// A command is recorded before Redis sees it, so once an operation has returned, what it sent is there. With a server
// that already knows a script, EVALSHA does not tell its text: record on a server of the test's own.
type recorder struct {
	addr string // for the client

	mu       sync.Mutex
	label    string
	commands []command
}

// A command is a command as it was sent.
type command struct {
	label string
	words []string
}

// A scriptCall is one EVAL, or one EVALSHA of a text seen before.
type scriptCall struct {
	label, text string
	keys, args  []string
	bySHA       bool
}

func startRecorder(t testing.TB, target string) *recorder {
	t.Helper()
	proxy := redistest.StartProxy(t, target)
	r := &recorder{addr: proxy.Addr()}
	proxy.Judge(func(words []string) redistest.Fault {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.commands = append(r.commands, command{r.label, words})
		return redistest.Fault{}
	})
	return r
}

// during labels what is sent while f runs. Calls must not overlap.
func (r *recorder) during(label string, f func()) {
	r.setLabel(label)
	defer r.setLabel("")
	f()
}

func (r *recorder) setLabel(label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.label = label
}

// sent returns the commands recorded under a label, without those by which a client maintains its connections.
func (r *recorder) sent(label string) []command {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []command
	for _, c := range r.commands {
		if c.label == label && !slices.Contains([]string{"PING", "CLIENT", "HELLO", "AUTH", "SELECT", "INFO"}, c.name()) {
			out = append(out, c)
		}
	}
	return out
}

func (c command) name() string { return strings.ToUpper(c.words[0]) }

// calls returns the scripts that an operation ran. An EVALSHA of an unknown text is left out: Redis replied to it
// with NOSCRIPT, and SCRIPT LOAD and another EVALSHA followed.
func (r *recorder) calls(label string) []scriptCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []scriptCall
	texts := map[string]string{}
	for _, c := range r.commands {
		var text string
		switch c.name() {
		case "SCRIPT":
			if len(c.words) == 3 && strings.EqualFold(c.words[1], "LOAD") {
				texts[sha(c.words[2])] = c.words[2]
			}
			continue
		case "EVAL":
			text = c.words[1]
			texts[sha(text)] = text
		case "EVALSHA":
			text = texts[c.words[1]]
		}
		if text == "" || c.label != label {
			continue
		}
		n, err := strconv.Atoi(c.words[2])
		if err != nil {
			continue
		}
		out = append(out, scriptCall{
			label: c.label, text: text, keys: c.words[3 : 3+n], args: c.words[3+n:], bySHA: c.name() == "EVALSHA",
		})
	}
	return out
}

func sha(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}
