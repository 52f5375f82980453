// SPDX-License-Identifier: Apache-2.0

// Package wire describes a limiter as Redis stores it: the members of the permits set, which Redisson and this
// package write in four layouts, and a State of all keys. Most programs do not need it. It is for programs that
// examine stored data, or that share limiters with a Redisson that reads another format. docs/design/protocol.md
// describes the bytes.
package wire
