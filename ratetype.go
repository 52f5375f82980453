// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import "github.com/goredisson/ratelimiter/internal/permit"

// A RateType says which clients share a rate, [Overall] or [PerClient], like Redisson's RateType. The zero value is
// Overall.
type RateType int

const (
	// Overall is one rate that all clients in all processes share.
	Overall RateType = iota
	// PerClient is a rate that each client has for itself; see [WithClientID].
	PerClient
)

// String returns the name that Redisson uses, OVERALL or PER_CLIENT.
func (t RateType) String() string { return permit.Type(t).String() }

// MarshalText returns the name that Redisson uses. It returns ErrInvalidArgument for an unknown type.
func (t RateType) MarshalText() ([]byte, error) {
	if t != Overall && t != PerClient {
		return nil, invalid("rate type %d is neither OVERALL nor PER_CLIENT", int(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText accepts OVERALL and PER_CLIENT. For anything else it returns ErrInvalidArgument and leaves t
// unchanged.
func (t *RateType) UnmarshalText(text []byte) error {
	switch string(text) {
	case "OVERALL":
		*t = Overall
	case "PER_CLIENT":
		*t = PerClient
	default:
		return invalid("rate type %q is neither OVERALL nor PER_CLIENT", permit.Shorten(string(text)))
	}
	return nil
}
