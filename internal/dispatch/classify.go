// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// Failure returns the meaning of err, the error of an attempt, with [Advise]. The argument must not be nil.
func Failure(err error) *retry.Error {
	var re redis.Error
	outcome := Classify(err)
	answered := errors.As(err, &re)
	advised := Advise(err)
	if Denied(err) {
		advised = fmt.Errorf("%w: %w", retry.ErrDenied, advised)
	}
	return &retry.Error{
		Err:      notOfCaller(advised),
		Outcome:  outcome,
		Shared:   outcome == retry.Unknown && errors.As(err, new(brokenPipeline)),
		Answered: answered,
		ReadOnly: refusesWrites(err),
		Local:    local(err),
		Final:    panicked(err),

		Unsent:    errors.Is(err, errShardDown),
		Elsewhere: answered && hasPrefix(err, "MOVED", "ASK", "TRYAGAIN", "NOSCRIPT", "CLUSTERDOWN Hash slot not served"),
		Handshake: answered && refusesUser(err),
	}
}

// notOfCaller returns err, or an error like it that is none of a context: go-redis and package net use those of contexts for times of
// their own, while the context of the caller goes on.
func notOfCaller(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return inner{err}
	}
	return err
}

// An inner is an error of a context that is not that of a caller.
type inner struct{ error }

// Is implements the interface of package errors.
func (e inner) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.error, target)
}

// As implements the interface of package errors.
func (e inner) As(target any) bool { return errors.As(e.error, target) }

// Classify returns the outcome of an attempt that ended with err. The argument must not be nil.
func Classify(err error) retry.Outcome {
	var re redis.Error
	if errors.As(err, &re) {
		if refusesWrites(err) || refusesUser(err) || hasPrefix(err, "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN",
			"BUSY", "NOSCRIPT", "max number of clients") {
			return retry.NotExecuted
		}
		return retry.Executed
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrCrossSlot) {
		return retry.Executed
	}
	if crowded(err) || errors.Is(err, errShardDown) {
		return retry.NotExecuted
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return retry.NotExecuted
	}
	return retry.Unknown
}

// hasPrefix reports whether err is a reply with one of the prefixes, with or without "ERR " before it.
func hasPrefix(err error, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return redis.HasErrorPrefix(err, p) })
}

// refusesUser reports whether err is the reply of a server that does not let a new connection in, because of its password, its
// user, or the rights of that user. The connections that are open may work on.
func refusesUser(err error) bool {
	// To a command of more than ten words, Redis since 6.2 says "unauthenticated" in place of NOAUTH, and hangs up.
	if hasPrefix(err, "WRONGPASS", "NOAUTH", "Protocol error: unauthenticated", "invalid password", "AUTH ", "Client sent AUTH") {
		return true
	}
	var re redis.Error
	return redis.HasErrorPrefix(err, "NOPERM") && errors.As(err, &re) &&
		(strings.Contains(re.Error(), "'hello'") || strings.Contains(re.Error(), "'auth'"))
}

// local reports whether err comes from this process and says nothing about Redis.
func local(err error) bool { return panicked(err) || crowded(err) }

// exhausted reports whether err says that this process, or its machine, has no descriptor, port or memory left for a connection.
func exhausted(err error) bool {
	for _, of := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// panicked reports whether a hook of the redis client panicked.
func panicked(err error) bool { return errors.As(err, new(*retry.Panic)) }

// crowded reports whether err says that a call was not sent because this process has too many others in flight.
func crowded(err error) bool {
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.As(err, new(*retry.Shortage)) || exhausted(err)
}

// refusesWrites reports whether err is the reply of a server that refuses to write. Nothing was written in that
// case: once one write of a script has been allowed, its later writes are, too.
func refusesWrites(err error) bool {
	var re redis.Error
	if !errors.As(err, &re) {
		return false
	}
	for _, p := range []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS"} {
		// Redis before 7 wraps the error that rejects a script's first write.
		if redis.HasErrorPrefix(err, p) || strings.Contains(re.Error(), "-"+p+" ") {
			return true
		}
	}
	return false
}
