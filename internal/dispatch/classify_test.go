// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"syscall"
	"testing"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// TestAdvise checks that an error of Redis or of the connection says what to do next, by the texts that they have.
func TestAdvise(t *testing.T) {
	for text, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'.":                                          "raise maxmemory",
		"ERR Error running script (call to f_0): -OOM command not allowed":                                 "raise maxmemory",
		"READONLY You can't write against a read only replica.":                                            "connect to the master",
		"MISCONF Redis is configured to save RDB snapshots":                                                "see its log",
		"NOREPLICAS Not enough good replicas to write.":                                                    "min-replicas-to-write",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL":                               "SCRIPT KILL",
		"LOADING Redis is loading the dataset in memory":                                                   "try again in a moment",
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                "choose another one",
		"NOPERM this user has no permissions":                                                              "docs/design/protocol.md",
		redis.ErrPoolTimeout.Error():                                                                       "PoolSize",
		redis.ErrClosed.Error():                                                                            "before the redis client",
		"dial tcp: lookup redis on 127.0.0.1:53: no such host":                                             "check it",
		(&net.OpError{Op: "read", Err: syscall.ECONNRESET}).Error():                                        "TLSConfig",
		(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}).Error():                                      "host and port",
		"tls: first record does not look like a TLS handshake":                                             "does not speak TLS",
		"tls: failed to verify certificate: x509: certificate is valid for redis.test, not elsewhere.test": "ServerName",
		"tls: failed to verify certificate: x509: certificate signed by unknown authority":                 "RootCAs",
		"x509: certificate is not valid for any names, but wanted to match redis":                          "ServerName",
		"x509: cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs":            "ServerName",
		"remote error: tls: handshake failure":                                                             "Certificates in TLSConfig",
		"WRONGPASS invalid username-password pair or user is disabled.":                                    "Username and Password",
		"NOAUTH Authentication required.":                                                                  "set Password",
		redis.Nil.Error():                                                                                  "ClusterSlots",
		"ERR This Redis command is not allowed from script script: 53aa7d":                                 "WithClientClock",
		"ERR internal error": "docs/production.md",
	} {
		err := Advise(errors.New(text))
		require.Regexp(t, `^`+regexp.QuoteMeta(text)+` \(.*`+want+`.*\)$`, err.Error())
	}
	unknown := errors.New("something else")
	require.Equal(t, unknown, Advise(unknown))
}

// TestContextsThatAreNotOfTheCaller checks that an error of go-redis or of package net does not pass for that of the caller's context.
func TestContextsThatAreNotOfTheCaller(t *testing.T) {
	for _, cause := range []error{
		context.DeadlineExceeded, context.Canceled,
		&net.OpError{Op: "dial", Err: context.DeadlineExceeded},
	} {
		failure := Failure(fmt.Errorf("dialing: %w", cause))
		require.NotErrorIs(t, failure, context.DeadlineExceeded)
		require.NotErrorIs(t, failure, context.Canceled)
		require.ErrorContains(t, failure, cause.Error())
	}
	dial := &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	require.ErrorIs(t, Failure(dial), error(dial), "what else it is stays")
	var op *net.OpError
	require.ErrorAs(t, Failure(dial), &op)
	require.Equal(t, retry.NotExecuted, Failure(dial).Outcome)
}

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
		{redisError("WRONGPASS invalid username-password pair or user is disabled."), retry.NotExecuted},
		{redisError("NOAUTH Authentication required."), retry.NotExecuted},
		{redisError("ERR Protocol error: unauthenticated multibulk length"), retry.NotExecuted},
		{redisError("ERR invalid password"), retry.NotExecuted}, // Redis 5
		{redisError("ERR Client sent AUTH, but no password is set"), retry.NotExecuted},
		{redisError("ERR AUTH <password> called without any password configured for the default user."), retry.NotExecuted},
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
		{redisError("NOPERM User app has no permissions to run the 'evalsha' command"), retry.Executed},
		{redisError("NOPERM User app has no permissions to run the 'hello' command"), retry.NotExecuted},
		{redisError("NOAUTH Authentication required."), retry.NotExecuted},
		{redisError("ERR Protocol error: unauthenticated multibulk length"), retry.NotExecuted},
		{redisError("WRONGPASS invalid username-password pair or user is disabled."), retry.NotExecuted},
		{redisError("ERR invalid password"), retry.NotExecuted},
		{redisError("ERR Client sent AUTH, but no password is set"), retry.NotExecuted},
		{redisError("ERR AUTH <password> called without any password configured for the default user."), retry.NotExecuted},
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
