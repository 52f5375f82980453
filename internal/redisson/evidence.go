// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A name alone does not show that a key belongs to a limiter: other programs have keys that end in :value or
// :permits, too.

// IsGrant reports whether m, with that score, is a member as limiters write it. In three of the layouts the first
// bytes cannot be those of a text. Any eight bytes fit the fourth layout, so its permits and date have to be
// plausible: the last four bytes of a text, or of a hash, are a large number.
func IsGrant(m []byte, score float64) bool {
	const earliest, latest = 1e11, 1e14 // ms: 1973 and 5138
	if len(m) < 8 {
		return false
	}
	permits := binary.LittleEndian.Uint32(m[len(m)-4:])
	switch {
	case permits == 0:
		return false
	case len(m) == 8:
		return permits < 1<<24 && score >= earliest && score <= latest
	case len(m) == 20:
		return binary.LittleEndian.Uint64(m) == 8
	}
	return len(m) == 13 && m[0] == 8 || len(m) == 21 && m[0] == 16
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
