package dispatch

import (
	"errors"
	"net"
	"strings"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// Failure returns what the error of an attempt says, err not being nil.
func Failure(err error) *retry.Error {
	var re redis.Error
	return &retry.Error{
		Err:      err,
		Outcome:  Classify(err),
		Answered: errors.As(err, &re),
		Local:    errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted),
	}
}

// Classify returns the outcome of an attempt that ended with err, which is not nil.
func Classify(err error) retry.Outcome {
	var re redis.Error
	if errors.As(err, &re) {
		for _, p := range []string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY",
			"BUSY", "NOSCRIPT", "OOM", "MISCONF", "NOREPLICAS", "ERR max number of clients", "max number of clients"} {
			if redis.HasErrorPrefix(err, p) {
				return retry.NotExecuted
			}
		}
		// Redis before 7 wraps what a script's first write is refused with. Nothing was written then:
		// after one write, the next ones of the script are let through.
		for _, p := range []string{"-OOM ", "-READONLY ", "-MISCONF ", "-NOREPLICAS "} {
			if strings.Contains(re.Error(), p) {
				return retry.NotExecuted
			}
		}
		return retry.Executed
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrCrossSlot) {
		return retry.Executed
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, errShardDown) {
		return retry.NotExecuted
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return retry.NotExecuted
	}
	return retry.Unknown
}
