// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// A State is a copy of what Redis holds of a limiter at one instant, for somebody who wants to know why callers
// wait. It shows the stored data and not its meaning: expired grants are reclaimed lazily, so they may still be
// there, and Value may be less than AvailablePermits returns. [ratelimiter.RateLimiter.Inspect] returns one.
type State struct {
	// Time is the instant at which the keys were read, by the limiter's clock: that of Redis, or that of this
	// process with [ratelimiter.WithClientClock].
	Time time.Time

	// HashKey, ValueKey and PermitsKey are the names of the limiter's keys. In a PER_CLIENT limiter the last
	// two are those of this client.
	HashKey, ValueKey, PermitsKey string
	// HashTTL, ValueTTL and PermitsTTL are how long each key still lives, to the millisecond. They are 0 for
	// a key that does not expire or does not exist.
	HashTTL, ValueTTL, PermitsTTL time.Duration

	// Fields are the fields of the hash as they are stored. If the hash has more than 64 fields, only those of
	// a limiter are included. The fields coolDown and reopenUntil, in milliseconds since the epoch, are present
	// while a cool-down is in force or re-opens.
	Fields map[string]string
	// Value is the content of the value key as it is stored, and empty if HasValue is false. The key does not
	// exist until the first acquire, nor after it was evicted or deleted.
	Value    string
	HasValue bool

	// MemberCount is the number of members of the permits key, including expired ones.
	MemberCount int64
	// Members are the newest members, newest first, at most 100.
	Members []StoredMember
	// Formats counts the Members by format. There is more than one if Redisson versions meet that do not read
	// each other's members.
	Formats map[Format]int
	// Layouts counts the Members by layout, which tells by whom they were written: it sets Redisson 3.17.0 to
	// 3.20, Redisson 3.21.0 and later, and this package apart, whose format is the same.
	Layouts map[Layout]int
}

// A StoredMember is one member of a permits set with its score. A member that no Redisson writes has the Format
// FormatUnknown, and the Permits that a reader finds in its last four bytes. Permits that a cool-down holds are
// members whose ID begins with ~c, or with ~l once they have been lifted. A member whose ID begins with ~w and
// whose Time is the Unix epoch is a tripwire of callers that wait; it is nobody's grant, and Value is one less
// because of it.
type StoredMember struct {
	Member
	// Raw is the member as it is stored.
	Raw []byte
	// Time is the score: when the permits were acquired, by the clock of the client that acquired them.
	Time time.Time
	// Expired reports whether the permits had come back at State.Time, whether or not anybody has reclaimed
	// them.
	Expired bool
}
