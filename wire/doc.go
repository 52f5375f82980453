// SPDX-License-Identifier: Apache-2.0

// Package wire is what a limiter looks like in Redis: the members of the permits set, which Redisson and this package
// write in four layouts, and a State of all keys. Most programs need none of it; it is for those who look at stored data,
// or whose Java neighbours run a Redisson that reads another format. docs/design/protocol.md describes the bytes.
package wire
