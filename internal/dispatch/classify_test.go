// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err  error
		want retry.Outcome
	}{
		{redisError("MOVED 1234 127.0.0.1:7001"), retry.NotExecuted},
		{redisError("ASK 1234 127.0.0.1:7001"), retry.NotExecuted},
		{redisError("TRYAGAIN Multiple keys request during rehashing of slot"), retry.NotExecuted},
		{redisError("CLUSTERDOWN The cluster is down"), retry.NotExecuted},
		{redisError("LOADING Redis is loading the dataset in memory"), retry.NotExecuted},
		{redisError("MASTERDOWN Link with MASTER is down"), retry.NotExecuted},
		{redisError("READONLY You can't write against a read only replica."), retry.NotExecuted},
		{redisError("BUSY Redis is busy running a script."), retry.NotExecuted},
		{redisError("ERR max number of clients reached"), retry.NotExecuted},
		{redis.ErrPoolTimeout, retry.NotExecuted},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, retry.NotExecuted},
		{fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}), retry.NotExecuted},
		{redisError("OOM command not allowed when used memory > 'maxmemory'."), retry.NotExecuted},
		{redisError("ERR Error running script (call to f_0): @user_script:9: -OOM command not allowed when used memory"), retry.NotExecuted},
		{redisError("ERR Error running script (call to f_0): @user_script:9: -READONLY You can't write against"), retry.NotExecuted},
		{redisError("MISCONF Redis is configured to save RDB snapshots"), retry.NotExecuted},
		{redisError("NOREPLICAS Not enough good replicas to write."), retry.NotExecuted},
		{redisError("WRONGTYPE Operation against a key holding the wrong kind of value"), retry.Executed},
		{redisError("NOPERM this user has no permissions"), retry.Executed},
		{redisError("ERR user_script:1: something"), retry.Executed},
		{redis.ErrClosed, retry.Executed},
		{io.EOF, retry.Unknown},
		{io.ErrUnexpectedEOF, retry.Unknown},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, retry.Unknown},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, retry.Unknown},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, retry.Unknown},
		{context.DeadlineExceeded, retry.Unknown},
		{errors.New("anything else"), retry.Unknown},
	} {
		require.Equal(t, c.want, Classify(c.err), "%v", c.err)
	}
}
