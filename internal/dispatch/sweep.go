// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

const (
	// sweepPatience is how long Sweep waits for the replies of some idle connections.
	sweepPatience = 50 * time.Millisecond
	// sweptFirst is how many idle connections Sweep tries first.
	sweptFirst = 8
	// sweepLasts is how long a connection that Sweep tries may be silent until the client drops it.
	sweepLasts = 500 * time.Millisecond
	// redials is how long Sweep waits until a pool dials. That of go-redis may pause for a second.
	redials = 1200 * time.Millisecond
	// redialEvery is how often it tries.
	redialEvery = 20 * time.Millisecond
)

// Sweep sends a command on idle connections of the pool to the server that holds a key: on a few at once, and as long as any of
// them is broken, on twice as many. The client drops those on which that fails, such as one that a load balancer has forgotten,
// or whose server has become a replica. The others are free again when Sweep returns, or when
// they have replied; one that is silent is dropped after half a second. If none is
// idle then, and there is room, Sweep returns when the pool can dial: after many failures go-redis dials only once a second, and until
// then says how it failed.
func Sweep(s Sender, key string, args []any) {
	ctx := context.Background()
	node, err := Node(ctx, s, key)
	if err != nil {
		return
	}
	c, ok := node.(interface {
		pool
		Conn() *redis.Conn
	})
	if !ok {
		return
	}
	if to, ok := node.(*redis.Client); ok && (to.Options().ReadTimeout <= 0 || to.Options().ReadTimeout > sweepLasts) {
		c = to.WithTimeout(sweepLasts) // on the same pool
	}
	free := make(chan struct{})
	defer close(free)
	// A hook may fail a command before it has a connection, so that there are as many idle ones as before.
	for n, left := sweptFirst, idle(c); left > 0; n, left = 2*n, min(left-n, idle(c)) {
		n = min(n, left)
		works := make(chan bool, n)
		for range n {
			go func() {
				ctx, cancel := context.WithTimeout(ctx, clientPatience)
				defer cancel()
				conn := c.Conn()
				defer conn.Close()
				err := Process(ctx, conn, Once{redis.NewCmd(ctx, args...)})
				works <- err == nil || err == redis.Nil || answers(Failure(err))
				<-free
			}()
		}
		if working(works, n) {
			return
		}
	}
	if stats := statsOf(c); stats.IdleConns == 0 && int(stats.TotalConns) < sizeOf(c) {
		waitForDial(node, args)
	}
}

// waitForDial waits until a pool dials, for at most redials.
func waitForDial(node Sender, args []any) {
	ctx, cancel := context.WithTimeout(context.Background(), redials)
	defer cancel()
	for ctx.Err() == nil {
		err := Send(ctx, node, Once{redis.NewCmd(ctx, args...)})
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "dial" {
			return
		}
		retry.SleepOr(redialEvery, ctx.Done(), nil)
	}
}

// answers reports whether an error is the reply of a server that carries out the calls of others.
func answers(failure *retry.Error) bool { return failure.Answered && !failure.ReadOnly }

// working reports whether n connections work. It waits for at most sweepPatience.
func working(works <-chan bool, n int) bool {
	late, all := time.After(sweepPatience), true
	for range n {
		select {
		case ok := <-works:
			all = all && ok
		case <-late:
			return false
		}
	}
	return all
}

// idle returns how many connections of a pool nobody uses.
func idle(p pool) int {
	stats := statsOf(p)
	return int(min(stats.IdleConns, stats.TotalConns))
}
