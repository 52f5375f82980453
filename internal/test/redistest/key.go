// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

var keys atomic.Int64

// Key returns a name that no other test of this process has: the test's own name, for readers of MONITOR, and a
// number. It has only letters, digits and "._-", so no braces. When t ends, Key deletes every key of the shared
// server whose name contains it, and no others.
func Key(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("%s.%06d.", strings.Map(keyRune, t.Name()), keys.Add(1))
	t.Cleanup(func() { deleteKeys(t, name) })
	return name
}

func keyRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_':
		return r
	default:
		return '-'
	}
}

// deleteKeys deletes the keys of the shared server that contain name. It uses a client of its own, because t may be
// ending in a bubble or outside of one. A server that no test has started holds no keys.
func deleteKeys(t testing.TB, name string) {
	shared.Lock()
	server, mini := shared.real, shared.mini
	shared.Unlock()
	if mini != nil {
		for _, key := range mini.Keys() {
			if strings.Contains(key, name) {
				mini.Del(key)
			}
		}
	}
	if server == nil {
		return
	}
	ctx := context.Background()
	rdb := redis.NewClient(options(server.Addr()))
	defer rdb.Close()
	scan := rdb.Scan(ctx, 0, "*"+name+"*", 1000).Iterator()
	for scan.Next(ctx) {
		if err := rdb.Del(ctx, scan.Val()).Err(); err != nil {
			t.Errorf("redistest: cleaning up: %v", err)
		}
	}
	if err := scan.Err(); err != nil {
		t.Errorf("redistest: cleaning up: %v", err)
	}
}
