// SPDX-License-Identifier: Apache-2.0

package ratelimiter_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// sentinelScript starts a sentinel with the arguments that redistest gives to a server.
const sentinelScript = `#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --port) port=$2 ;;
    --dir) dir=$2 ;;
    --sentinel-of) master=$2 ;;
    esac
    shift 2
done
cat >"$dir/sentinel.conf" <<EOT
port $port
bind 127.0.0.1
sentinel monitor limits 127.0.0.1 $master 2
EOT
exec %s-server "$dir/sentinel.conf" --sentinel
`

// TestSentinelsOfWhichSomeAreMute has one, and then all, of three Sentinels accept connections and never reply. Beside one, Ping and
// a call succeed when Redis does, as with go-redis alone. Beside three, the error says that it is Sentinel that fails.
func TestSentinelsOfWhichSomeAreMute(t *testing.T) {
	redistest.NeedReal(t)
	master := redistest.Start(t)
	_, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "sentinel")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, sentinelScript, redistest.Lane()), 0o700))
	var sentinels, mute []string
	for range 3 {
		s := redistest.Must(redistest.NewServer(script, t.TempDir(), "--sentinel-of", port))(t)
		t.Cleanup(s.Close)
		sentinels = append(sentinels, s.Addr())
		l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // the kernel accepts, and nobody reads
		t.Cleanup(func() { _ = l.Close() })
		mute = append(mute, l.Addr().String())
	}
	client := func(addrs ...string) *ratelimiter.Client {
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "limits", SentinelAddrs: addrs, DialTimeout: time.Second, ReadTimeout: time.Second})
		t.Cleanup(func() { _ = rdb.Close() })
		c := redistest.Must(ratelimiter.New(rdb))(t)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for i := range 3 {
		addrs := []string{sentinels[0], sentinels[1], sentinels[2]}
		addrs[i] = mute[i]
		require.NoError(t, client(addrs...).Ping(t.Context()), "the mute one is number %d", i)
		l := client(addrs...).RateLimiter(redistest.Key(t)).WithRate(ratelimiter.Rate{Permits: 10, Interval: time.Minute})
		require.NoError(t, l.Acquire(t.Context(), 1), "the mute one is number %d", i)
	}
	err = client(mute...).Ping(t.Context())
	require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
	require.ErrorContains(t, err, "entinel")
	t.Log(err)
}
