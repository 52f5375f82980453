package redisscript

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Outcome is what an error says of whether the script ran.
type Outcome int

const (
	Executed    Outcome = iota // it ran and failed, or could not run however often it is sent
	NotExecuted                // it surely did not run and may another time
	Unknown                    // it may have run
)

// Classify is the outcome of an attempt that ended with err, which is not nil.
func Classify(err error) Outcome {
	var re redis.Error
	if errors.As(err, &re) {
		for _, p := range []string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY",
			"BUSY", "NOSCRIPT", "OOM", "MISCONF", "NOREPLICAS", "ERR max number of clients", "max number of clients"} {
			if redis.HasErrorPrefix(err, p) {
				return NotExecuted
			}
		}
		// Redis before 7 wraps what a script's first write is refused with. Nothing was written then:
		// after one write, the next ones of the script are let through.
		for _, p := range []string{"-OOM ", "-READONLY ", "-MISCONF ", "-NOREPLICAS "} {
			if strings.Contains(re.Error(), p) {
				return NotExecuted
			}
		}
		return Executed
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrCrossSlot) {
		return Executed
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, errShardDown) {
		return NotExecuted
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return NotExecuted
	}
	return Unknown
}
