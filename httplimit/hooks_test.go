// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// refusedDial is what go-redis says of a Redis that is not there.
var refusedDial = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// A scriptCounter counts the scripts that have so many keys: TrySetRate is the only one with one.
type scriptCounter struct {
	keys int64
	n    atomic.Int64
}

func (c *scriptCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *scriptCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		args := cmd.Args()
		if name, ok := args[0].(string); ok && strings.HasPrefix(name, "eval") && len(args) > 2 {
			if n, ok := args[2].(int); ok && int64(n) == c.keys && err == nil {
				c.n.Add(1)
			}
		}
		return err
	}
}

func (c *scriptCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A faultHook fails what it is told to.
type faultHook struct{ fail func(cmd redis.Cmder) error }

func (h *faultHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *faultHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.fail(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *faultHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// connCounter counts the connections that a server gets.
func connCounter(n *atomic.Int64) func(net.Conn, http.ConnState) {
	return func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			n.Add(1)
		}
	}
}
