// SPDX-License-Identifier: Apache-2.0

// Package outage tracks whether Redis is down, and decides what a process may grant during an outage.
package outage

import "github.com/goredisson/ratelimiter/internal/permit"

// A Kind tells what happens to requests during an outage.
type Kind int

const (
	FailClosed Kind = iota
	FailOpen
	LocalQuota
)

// A Policy is a Kind with its figures.
type Policy struct {
	Kind  Kind
	Rate  permit.Rate // for LocalQuota, until Redis has reported a rate
	Nodes int         // processes that divide a LocalQuota
}

// PolicyOf returns the policy that p, an OutagePolicy of package ratelimiter, stands for. That package sets it, so that its
// own type need not show what package limit has to know.
var PolicyOf func(p any) Policy
