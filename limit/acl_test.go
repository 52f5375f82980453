// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"os"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestLeastPrivilege checks that the ACL of docs/design/protocol.md suffices for every algorithm, and names no command that
// none of them sends.
func TestLeastPrivilege(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 0, "ACL")
	doc := redistest.Must(os.ReadFile("../docs/design/protocol.md"))(t)
	_, rest, ok := strings.Cut(string(doc), "Package `limit` needs, on the keys `limit2:*`:\n\n")
	require.True(t, ok)
	line, _, _ := strings.Cut(rest, "\n")
	commands := strings.Fields(line)

	s, ctx := redistest.Start(t), t.Context()
	admin := s.Client(t)
	args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~limit2:*"}
	for _, c := range commands {
		args = append(args, c)
	}
	require.NoError(t, admin.Do(ctx, args...).Err())
	rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" })
	var scripts strings.Builder
	for kind, a := range every() {
		l := redistest.Must(NewShared(rdb, "acl-"+strings.ReplaceAll(kind, " ", "-"), a))(t)
		for range 20 {
			_, err := l.For("key").Allow(ctx, 1)
			require.NoError(t, err, kind)
		}
		scripts.WriteString(a.script().Src)
	}
	require.Empty(t, redistest.Must(admin.Do(ctx, "ACL", "LOG").Slice())(t))
	for _, c := range commands {
		name := strings.ToUpper(strings.TrimPrefix(c, "+"))
		require.True(t, strings.HasPrefix(name, "EVAL") || strings.Contains(scripts.String(), "'"+name+"'"), c)
	}
}
