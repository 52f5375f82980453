// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"strconv"

	"github.com/google/uuid"
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

// Clients finds the ids of the clients that have keys in the limiter, in no order and each once. It reads the names of all
// keys of the server that holds the limiter, and its results are those that each call has found.
func (l *Limiter) Clients() permit.Op[[]string] {
	var (
		node    dispatch.Sender
		cursor  uint64
		pattern = l.Keys.ClientsPattern()
		seen    = map[string]bool{}
	)
	return permit.Op[[]string]{Name: "Clients", Reads: true, Step: func(ctx context.Context) (ids []string, more bool, err error) {
		if node == nil {
			if node, err = dispatch.Node(ctx, l.sender, l.Keys.Hash); err != nil {
				return nil, false, dispatch.Failure(err)
			}
		}
		keys, next, err := l.scan(ctx, node, cursor, pattern)
		if err != nil {
			return nil, false, err
		}
		for _, key := range keys {
			if id, ok := l.Keys.ClientOf(key); ok && !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
		cursor = next
		return ids, next != 0, nil
	}}
}

// scan makes one attempt at one step of a SCAN on a node.
func (l *Limiter) scan(ctx context.Context, node dispatch.Sender, cursor uint64, pattern string) (keys []string, next uint64, err error) {
	cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", pattern, "count", scanStep)
	err = dispatch.Naming(dispatch.Send(ctx, node, dispatch.Once{Cmder: cmd}), cmd.Name(), []any{l.Keys.Hash})
	switch {
	case err == nil:
		return cmd.Result()
	case ctx.Err() != nil:
		return nil, 0, dispatch.Failure(err)
	}
	return nil, 0, dispatch.ClassifyError(ctx, node, err)
}

// IsClient reports whether id is a UUID. Redisson's ids are always UUIDs, and those of this package are by default.
func IsClient(id string) bool { return len(id) == 36 && uuid.Validate(id) == nil }

// isClient reports whether the keys that l has for the given client id belong to a client of a PER_CLIENT limiter. It
// judges a set by its newest members, and a value without a set by the id. A client with another kind of id fits a
// new rate by its own next call.
func (l *Limiter) isClient(ctx context.Context, id string) (bool, error) {
	st, err := l.inspect(ctx, permit.PerClient)
	var other *permit.WrongTypeError
	switch {
	case errors.As(err, &other) || errors.Is(err, permit.ErrNotInitialized) || errors.Is(err, permit.ErrMalformed):
		return false, nil // changed in the meantime
	case err != nil:
		return false, err
	case st.MemberCount == 0:
		_, err := strconv.ParseInt(st.Value, 10, 64)
		return err == nil && IsClient(id), nil
	}
	for _, m := range st.Members {
		if !IsGrant(m.Raw, float64(m.Time.UnixMilli())) {
			return false, nil
		}
	}
	return true, nil
}
