// Package outage has what a process knows and does while Redis is away: whether it is, and what may be granted
// without it.
package outage

import "github.com/goredisson/ratelimiter/internal/permit"

// A Kind says what becomes of requests while Redis is away.
type Kind int

const (
	FailClosed Kind = iota
	FailOpen
	LocalShare
)

// A Policy is a Kind with its figures.
type Policy struct {
	Kind  Kind
	Rate  permit.Rate // of a LocalShare, until Redis has told it
	Nodes int         // among which a LocalShare is divided
}
