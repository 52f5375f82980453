package ratelimiter

import "github.com/goredisson/ratelimiter/internal/permit"

// RateType says whose permits a rate counts. Redisson: RateType.
type RateType int

const (
	// Overall is one rate for all clients of all processes together.
	Overall RateType = iota
	// PerClient is a rate for each client of its own; see [WithClientID].
	PerClient
)

// String returns the name that Redisson uses: OVERALL or PER_CLIENT.
func (t RateType) String() string { return permit.Type(t).String() }

// MarshalText writes the name that Redisson uses. An unknown type is ErrInvalidArgument.
func (t RateType) MarshalText() ([]byte, error) {
	if t != Overall && t != PerClient {
		return nil, invalid("rate type %d is neither OVERALL nor PER_CLIENT", int(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads OVERALL or PER_CLIENT. Anything else is ErrInvalidArgument and leaves t as it is.
func (t *RateType) UnmarshalText(text []byte) error {
	switch string(text) {
	case "OVERALL":
		*t = Overall
	case "PER_CLIENT":
		*t = PerClient
	default:
		return invalid("rate type %q is neither OVERALL nor PER_CLIENT", text)
	}
	return nil
}
