package limit

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/goredisson/ratelimiter/internal/redisscript"
	"github.com/redis/go-redis/v9"
)

// A guarded sender returns an error where a hook of the caller's client panics. The command may run in a
// goroutine of this package, which the caller can leave and cannot recover in: there a panic would end the
// process.
type guarded struct{ redisscript.Sender }

// Process implements redisscript.Sender.
func (g guarded) Process(ctx context.Context, cmd redis.Cmder) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &hookPanic{p, debug.Stack()}
			cmd.SetErr(err)
		}
	}()
	return g.Sender.Process(ctx, cmd)
}

// A hookPanic is the panic of a hook. Its command may have run.
type hookPanic struct {
	value any
	stack []byte
}

// Error says what the hook panicked with, and where.
func (p *hookPanic) Error() string {
	return fmt.Sprintf("a hook of the Redis client panicked: %v\n\n%s", p.value, p.stack)
}
