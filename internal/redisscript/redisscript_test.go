package redisscript

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Outcome
	}{
		{redisError("MOVED 1234 127.0.0.1:7001"), NotExecuted},
		{redisError("ASK 1234 127.0.0.1:7001"), NotExecuted},
		{redisError("TRYAGAIN Multiple keys request during rehashing of slot"), NotExecuted},
		{redisError("CLUSTERDOWN The cluster is down"), NotExecuted},
		{redisError("LOADING Redis is loading the dataset in memory"), NotExecuted},
		{redisError("MASTERDOWN Link with MASTER is down"), NotExecuted},
		{redisError("READONLY You can't write against a read only replica."), NotExecuted},
		{redisError("BUSY Redis is busy running a script."), NotExecuted},
		{redisError("ERR max number of clients reached"), NotExecuted},
		{redis.ErrPoolTimeout, NotExecuted},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, NotExecuted},
		{fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}), NotExecuted},
		{redisError("OOM command not allowed when used memory > 'maxmemory'."), NotExecuted},
		{redisError("ERR Error running script (call to f_0): @user_script:9: -OOM command not allowed when used memory"), NotExecuted},
		{redisError("ERR Error running script (call to f_0): @user_script:9: -READONLY You can't write against"), NotExecuted},
		{redisError("MISCONF Redis is configured to save RDB snapshots"), NotExecuted},
		{redisError("NOREPLICAS Not enough good replicas to write."), NotExecuted},
		{redisError("WRONGTYPE Operation against a key holding the wrong kind of value"), Executed},
		{redisError("NOPERM this user has no permissions"), Executed},
		{redisError("ERR user_script:1: something"), Executed},
		{redis.ErrClosed, Executed},
		{io.EOF, Unknown},
		{io.ErrUnexpectedEOF, Unknown},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, Unknown},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, Unknown},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, Unknown},
		{context.DeadlineExceeded, Unknown},
		{errors.New("anything else"), Unknown},
	} {
		require.Equal(t, c.want, Classify(c.err), "%v", c.err)
	}
}
