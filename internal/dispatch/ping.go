// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

const (
	// pingAgain is after what time without a reply Ping asks on another connection.
	pingAgain = 500 * time.Millisecond
	// pingPatience is how long that connection may be silent.
	pingPatience = time.Second
)

// errSentinel is the error of a Ping that Sentinel has not led to a server.
var errSentinel = errors.New("sentinel has not named a master that accepts connections; ask each with redis-cli -p 26379 sentinel get-master-addr-by-name NAME")

// Ping asks any server of s for a reply: on a connection of the pool, and if that fails or has no reply for half a second, on a
// new one as well, because it may be the connection that is broken. An error is a *[retry.Error]: the first of these, or that of ctx.
func Ping(ctx context.Context, s Sender) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args, a := []any{"ping"}, &apart{}
	ended := make(chan error, 2)
	go func() { ended <- Process(ctx, Alone(s), Once{redis.NewCmd(ctx, args...)}) }()
	late := time.NewTimer(pingAgain)
	defer late.Stop()
	var first *retry.Error
	for asking, again := 1, true; ; {
		select {
		case err := <-ended:
			if err == nil {
				return nil
			}
			failure, ok := err.(*retry.Error)
			if !ok {
				failure = Failure(err)
			}
			if failure.Answered || failure.Local || failure.Outcome == retry.Executed {
				return failure
			}
			first = cmp.Or(first, failure)
			asking--
		case <-late.C:
		case <-ctx.Done():
			return a.named(cmp.Or(first, Failure(ctx.Err())))
		}
		if again {
			again = false
			asking++
			a = newApart()
			context.AfterFunc(ctx, a.close)
			go func() { ended <- a.probe(s, "", args, pingPatience) }()
		} else if asking == 0 {
			return a.named(first)
		}
	}
}

// named returns failure, which says that it is Sentinel that fails if a has not got further.
func (a *apart) named(failure *retry.Error) error {
	if a.atSentinel() {
		failure.Err = fmt.Errorf("%w: %w", errSentinel, failure.Err)
	}
	return failure
}

// PingNeeds returns how long a Ping may take beside what the server itself takes: a Sentinel that does not reply is
// waited for before the next one decides.
func PingNeeds(s Sender) time.Duration {
	if o := optionsOf(Alone(s)); o != nil && o.Addr == failover {
		return o.DialTimeout + max(o.ReadTimeout, 0)
	}
	return 0
}
