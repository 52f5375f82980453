// SPDX-License-Identifier: Apache-2.0

// Package wire describes a limiter as Redis stores it. Most programs do not need it. It is for programs that examine
// stored data, and for those that share limiters with a Redisson that reads another format.
//
//	state, err := client.RateLimiter("sms").Admin().Inspect(ctx)
//	if err != nil {
//		return err
//	}
//	for _, m := range state.Members { // the grants, newest first
//		fmt.Println(m.Time, m.Permits, m.Layout().Writers(), m.Expired)
//	}
//
// A [State] is a copy of all keys of a limiter. A [Member] is one grant. Redisson and package ratelimiter write members
// in four layouts of three formats: see [Layout] and [Format]. docs/design/protocol.md describes the bytes.
package wire
