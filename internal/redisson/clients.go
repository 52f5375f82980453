// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
)

// scanStep is how many keys a SCAN looks at, which takes Redis about a fifth of a millisecond.
const scanStep = 200

// Forget removes the permits that a client has in the PER_CLIENT limiter of that name, even if ctx is done. The id
// must not be in use any more: the client's next call would find all permits of the rate free.
func Forget(ctx context.Context, rdb redis.UniversalClient, name, clientID string) error {
	ctx = context.WithoutCancel(ctx) // what ended it comes after the change that is to leave nothing
	keys := NewKeys(name, clientID)
	node, err := dispatch.Node(ctx, dispatch.Pin(rdb), keys.Hash)
	if err != nil {
		return err
	}
	cmd := redis.NewIntCmd(ctx, "unlink", keys.Value[permit.PerClient], keys.Permits[permit.PerClient])
	return dispatch.Process(ctx, node, cmd)
}

// Clients calls yield with the id of each client that has keys in the limiter, in no order and each once, until
// yield returns false. It reads the names of all keys of the server that holds the limiter, in steps.
func (l *Limiter) Clients(ctx context.Context, yield func(id string) bool) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	node, err := dispatch.Node(ctx, l.sender, l.Keys.Hash)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return permit.Failed("Clients", l.Name, dispatch.Failure(err))
	}
	conn := *l.Conn
	conn.sender = node
	at := *l
	at.Conn = &conn

	pattern, seen := l.Keys.ClientsPattern(), map[string]bool{}
	for cursor := uint64(0); ; {
		if err := l.ready(ctx); err != nil {
			return err
		}
		var keys []string
		cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", pattern, "count", scanStep)
		_, err := command(ctx, &at, "Clients", cmd, func() (_ struct{}, err error) {
			keys, cursor, err = cmd.Result()
			return struct{}{}, err
		})
		if err != nil {
			return err
		}
		for _, key := range keys {
			id, ok := l.Keys.ClientOf(key)
			if !ok || seen[id] {
				continue
			}
			seen[id] = true
			if !yield(id) {
				return nil
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

// command runs a plain read-only command on the node of l.sender, and returns its result. An error names the limiter
// and is ErrUnavailable if Redis could not be reached.
func command[T any](ctx context.Context, l *Limiter, op string, cmd redis.Cmder, result func() (T, error)) (v T, err error) {
	err = l.Gate.Read(ctx, op, func(bool) (err error) {
		v, err = dispatch.Leavable(ctx, func() (T, error) {
			_ = dispatch.Process(ctx, l.sender, dispatch.Once{Cmder: cmd})
			v, err := result()
			return v, dispatch.Naming(err, cmd.Name(), []any{l.Keys.Hash})
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return dispatch.Failure(err)
		}
		return dispatch.ClassifyError(ctx, l.sender, err)
	})
	return v, err
}
