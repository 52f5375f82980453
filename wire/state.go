// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// A State is a copy of all that Redis holds of a limiter at one instant, for finding out why callers wait. It shows
// the stored data and not its meaning. Expired grants are reclaimed lazily, so they may still be there, and Value may
// be less than AvailablePermits returns. ratelimiter.Admin.Inspect returns a State.
type State struct {
	// Time is the instant at which the keys were read, by the limiter's clock: that of Redis, or of this process with
	// ratelimiter.WithClientClock.
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
	// Value is the content of the value key as it is stored, or empty if HasValue is false. The key does not exist
	// before the first acquire, or after it was evicted or deleted.
	Value    string
	HasValue bool

	// MemberCount is the number of members of the permits key, including expired ones.
	MemberCount int64
	// Members are the newest members, newest first, at most 100.
	Members []StoredMember
	// Formats counts the Members by format. It has several if Redisson versions share the limiter that cannot read
	// each other's members.
	Formats map[Format]int
	// Layouts counts the Members by layout, which shows who wrote them. Unlike Formats it separates Redisson 3.17.0 to
	// 3.20, Redisson 3.21.0 and later, and this package.
	Layouts map[Layout]int
}

// A StoredMember is one member of a permits set with its score. If no Redisson version writes such a member, its
// Format is FormatUnknown, and its Permits are those that a reader finds in its last four bytes.
//
// Two kinds of members are not grants of permits to a caller. A member whose ID begins with ~c holds permits for a
// cool-down; once the cool-down has been lifted, its ID begins with ~l. A member whose ID begins with ~w and whose
// Time is the Unix epoch is a tripwire of callers that wait; it lowers Value by one.
type StoredMember struct {
	Member
	// Raw is the member as it is stored.
	Raw []byte
	// Time is the score: when the permits were acquired, by the clock of the client that acquired them.
	Time time.Time
	// Expired reports whether the permits had expired at State.Time, whether or not a call has reclaimed them.
	Expired bool
}
