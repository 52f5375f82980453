package ratelimiter

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
)

// newRequestID is not a secret; it only must not repeat, nor begin as the members do that are nobody's grants.
func newRequestID() (id requestID) {
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	if id[0] == '~' {
		id[0] = 0
	}
	return id
}

// requestID is one whose first bytes are the tag of this process, so that others tell its grants from theirs.
func (c *Client) requestID() requestID {
	id := newRequestID()
	id[0] = byte(c.tag >> 8)
	if c.cfg.memberFormat != MemberLc0I {
		id[1] = byte(c.tag)
	}
	return id
}

// newTag does not begin with what marks and blocks begin with.
func newTag() int {
	for {
		if tag := rand.IntN(1 << 16); tag>>8 != '~' {
			return tag
		}
	}
}

// send runs a script and answers its raw reply. When ctx is done it answers ctx.Err() as it is; then,
// and after an error of class unknown, the script may have run.
func (l *RateLimiter) send(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	cmd, err := s.Command(keys, args...)
	if err != nil {
		return nil, err
	}
	l.touched()
	defer l.touched()
	for tries := (redisscript.Attempts{Begin: time.Now()}); ; tries.Pause(ctx.Done(), l.client.closed) {
		if err := l.ready(ctx); err != nil { // which of them ended the pause
			return nil, err
		}
		reply, err := l.client.sendOnce(ctx, s, cmd)
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		what, again := tries.Failed(err)
		if !again || what == redisscript.Unknown && s.resend != resendAlways {
			return nil, l.failed(s.Name, what, err)
		}
	}
}

// failed is what callers get when a script could not be run to its end: ErrUnavailable unless it ran and
// failed.
func (l *RateLimiter) failed(op string, what redisscript.Outcome, err error) error {
	if what == redisscript.Executed {
		return fmt.Errorf("ratelimiter: %s of %q: %w", op, l.name, err)
	}
	return fmt.Errorf("%w: %s of %q: %w", ErrUnavailable, op, l.name, err)
}

// sendOnce makes one attempt.
func (c *Client) sendOnce(ctx context.Context, s *script, evalsha []any) (any, error) {
	return s.Once(ctx, c.rdb, evalsha)
}
