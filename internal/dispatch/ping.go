// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"errors"
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
// new one as well, because it may be the connection that is broken. An error is a *[retry.Error]: the first of the two, or that
// of ctx.
func Ping(ctx context.Context, s Sender) error {
	args, a := []any{"ping"}, newApart()
	defer a.close()
	ended, asked := make(chan error, 2), 1
	go func() { ended <- Process(ctx, Alone(s), Once{redis.NewCmd(ctx, args...)}) }()
	late := time.NewTimer(pingAgain)
	defer late.Stop()
	var first *retry.Error
	for again := false; asked > 0; {
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
			asked--
		case <-late.C:
		case <-ctx.Done():
			err := ctx.Err()
			if a.atSentinel() {
				err = errors.Join(errSentinel, err)
			}
			return cmp.Or(first, Failure(err))
		}
		if !again {
			again = true
			asked++
			go func() { ended <- a.probe(s, "", args, pingPatience) }()
		}
	}
	return first
}

// PingNeeds returns how long a Ping may take beside what the server itself takes: a Sentinel that does not reply is
// waited for before the next one decides.
func PingNeeds(s Sender) time.Duration {
	if o := optionsOf(Alone(s)); o != nil && o.Addr == failover {
		return o.DialTimeout + max(o.ReadTimeout, 0)
	}
	return 0
}
