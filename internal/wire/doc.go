// SPDX-License-Identifier: Apache-2.0

// Package wire describes the members of a limiter's permits set, for those who look at stored data. A [Member] is one
// grant. Redisson and package ratelimiter write members in four layouts of three formats: see [Layout] and [Format].
// docs/design/protocol.md describes the bytes.
package wire
