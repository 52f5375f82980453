package limit

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/redis/go-redis/v9"
)

// A guarded sender returns an error if a hook of the user's client panics. A command whose context can end runs
// in a goroutine of its own, where the caller cannot recover, and a panic would end the process.
type guarded struct{ dispatch.Sender }

// Process implements dispatch.Sender.
func (g guarded) Process(ctx context.Context, cmd redis.Cmder) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &hookPanic{p, debug.Stack()}
			cmd.SetErr(err)
		}
	}()
	return g.Sender.Process(ctx, cmd)
}

// A hookPanic is the error of a command during which a hook panicked. The command may have run.
type hookPanic struct {
	value any
	stack []byte
}

// Error returns the value and the stack of the panic.
func (p *hookPanic) Error() string {
	return fmt.Sprintf("a hook of the Redis client panicked: %v\n\n%s", p.value, p.stack)
}
