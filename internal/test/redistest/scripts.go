// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var (
	scriptIndex = regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	scriptUse   = regexp.MustCompile(`(?m)^ *--#use (\w+)$`)
	oneKey      = regexp.MustCompile(`^'[A-Z]+', KEYS\[\d+\][,)]`)
	onlyKeys    = regexp.MustCompile(`^'[A-Z]+'(, KEYS\[\d+\])+\)`)
	scriptEntry = regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)\]   ?\S`)
)

// ScriptHeader checks that three things agree: the header of a script in the folder scripts of the tested package,
// the KEYS and ARGV of its body, and the numbers of both with which s is sent.
func ScriptHeader(t testing.TB, s *dispatch.Script) {
	t.Helper()
	require.Equal(t, dispatch.Source(os.DirFS("."), s.Name), s.Src)
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

// SharedFragments checks that the scripts in the folder scripts of the tested package use each of the fragments in
// scripts/shared at least twice.
func SharedFragments(t testing.TB) {
	t.Helper()
	read := func(pattern string) map[string]string {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		texts := map[string]string{}
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			texts[strings.TrimSuffix(filepath.Base(file), ".lua")] = string(text)
		}
		return texts
	}
	used, fragments := map[string]int{}, read("scripts/shared/*.lua")
	for _, texts := range []map[string]string{read("scripts/*.lua"), fragments} {
		for _, text := range texts {
			for _, m := range scriptUse.FindAllStringSubmatch(text, -1) {
				used[m[1]]++
			}
		}
	}
	for name := range fragments {
		require.GreaterOrEqual(t, used[name], 2, "uses of %s", name)
	}
	require.Len(t, fragments, len(used))
}

// LiteralKeys returns an error unless each key of each command in a script is literally KEYS[n], as Alibaba Cloud's proxy
// wants it. A key that a script derives may also be in a slot of another node.
func LiteralKeys(src string) error {
	for i, line := range strings.Split(strings.ReplaceAll(src, "redis.pcall(", "redis.call("), "\n") {
		for _, call := range strings.Split(line, "redis.call(")[1:] {
			name, _, _ := strings.Cut(strings.TrimPrefix(call, "'"), "'")
			rule := oneKey
			switch name {
			case "TIME":
				continue
			case "UNLINK", "DEL", "EXISTS", "TOUCH", "MGET":
				rule = onlyKeys
			}
			if !rule.MatchString(call) {
				return fmt.Errorf("line %d: a key is not literally KEYS[n]: %s", i+1, call)
			}
		}
	}
	return nil
}

// HoldToProxyRules holds the calls of scripts that rdb sends to the rules of Alibaba Cloud's proxy that the text of a script
// does not show: each has a key, and all keys are in one slot. It returns how many calls there were.
func HoldToProxyRules(t testing.TB, rdb redis.UniversalClient) *atomic.Int64 {
	h := &proxyRules{t: t}
	rdb.AddHook(h)
	return &h.calls
}

type proxyRules struct {
	redis.Hook
	t     testing.TB
	calls atomic.Int64
}

func (h *proxyRules) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.check(cmd); return next(ctx, cmd) }
}

func (h *proxyRules) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.check(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h *proxyRules) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *proxyRules) check(cmd redis.Cmder) {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return
	}
	h.calls.Add(1)
	args := cmd.Args()
	keys, err := strconv.Atoi(fmt.Sprint(args[2]))
	if err != nil || keys < 1 {
		h.t.Errorf("a script without a key: %v", args[:3])
		return
	}
	for _, key := range args[4 : 3+keys] {
		if HashTag(fmt.Sprint(key)) != HashTag(fmt.Sprint(args[3])) {
			h.t.Errorf("keys in several slots: %v", args[3:3+keys])
		}
	}
}

// HashTag returns the part of a key by which a cluster chooses its slot.
func HashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !ok || !closed || tag == "" {
		return key
	}
	return tag
}
