// SPDX-License-Identifier: Apache-2.0

package permit

import "context"

// Traffic is what a process has in flight to the server of a limiter, as far as it can tell.
type Traffic struct {
	Left    int64 // round trips that have left
	Replied int64 // those that have had a reply
	Newest  int64 // the number of the last one to leave that has had a reply; 0 for none
	Sent    int   // at least so many of those that have not ended have got a connection
}

// A Wire has functions that are called for the traffic of a connection. None is nil.
type Wire struct {
	Sent  func() (first bool) // something has been sent: the first since the server was heard, or since the beginning
	Heard func()              // something has come from the server
}

// A Prober makes probes, one at a time.
type Prober interface {
	// Probe makes one attempt at a write that changes nothing. An error is a *[retry.Error].
	Probe(ctx context.Context) error
	// Close closes the prober, and ends a probe in flight.
	Close()
}
