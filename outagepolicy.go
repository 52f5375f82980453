// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"fmt"

	"github.com/goredisson/ratelimiter/internal/outage"
)

// An OutagePolicy decides requests for permits during an outage of Redis, including those in flight when it begins.
// After a call that fails, or half a second without replies, the Client asks the server on a new connection. If that is
// refused for 0.4 seconds, or the server is silent for a second, an outage begins; the first reply ends it.
// docs/outages.md has a table. Each master of a cluster and each shard of a ring has outages of its own.
//
// The policy decides nothing else. Errors that Redis replies, such as WRONGTYPE or NOPERM, and ErrOverloaded reach the
// caller under every policy, and methods such as SetRate or Release need Redis. The zero value is [FailClosed].
type OutagePolicy struct {
	kind  outage.Kind
	rate  Rate
	nodes int
}

// FailClosed returns the policy that grants nothing without Redis. Calls that do not wait return ErrUnavailable at
// once; others wait as [WithOutageLimit] says. Use it for limits that must hold, such as those of an API that bans.
func FailClosed() OutagePolicy { return OutagePolicy{} }

// FailOpen returns the policy that grants everything at once without Redis, except in a cool-down that this process
// knows of. Use it for limits that only smooth the load.
func FailOpen() OutagePolicy { return OutagePolicy{kind: outage.FailOpen} }

// LocalQuota returns the policy that grants this process its share of the rate without Redis: floor(permits / nodes)
// permits in any interval, where nodes is the largest number of processes that use the limiter, 1 for a [PerClient]
// limiter. The rate is the last one that Redis reported to this process, and r until then.
//
// The share begins one interval after the outage has become known, because what Redis granted before still counts. A
// request for more than the share, which is zero if there are more nodes than permits, gets ErrUnavailable, as does one
// for a limiter beyond the 65,536 that a process counts, or the 128 whose keys hash alike. When Redis is back, the
// process charges to it what it granted, and then asks for more.
//
// No window holds more than the rate if all processes lose Redis, all have this policy, and nodes is right, except:
//
//   - A process that reaches Redis before others cannot know what those have granted. They charge it at most 1.25 s
//     later; until then a window may hold nearly twice the rate.
//   - A process that loses Redis while others keep it adds its share to the rate. So do Redisson's clients.
//   - A Redis that comes back without its data does not know its own grants.
func LocalQuota(r Rate, nodes int) OutagePolicy {
	return OutagePolicy{kind: outage.LocalQuota, rate: r, nodes: nodes}
}

// String returns the policy in a form for log lines, such as "open".
func (p OutagePolicy) String() string {
	switch p.kind {
	case outage.FailOpen:
		return "open"
	case outage.LocalQuota:
		return fmt.Sprintf("local quota of %v among %d", p.rate, p.nodes)
	}
	return "closed"
}

// Validate returns ErrInvalidArgument if p is a local quota with fewer than one node or a rate that is out of range.
func (p OutagePolicy) Validate() error {
	if p.kind != outage.LocalQuota {
		return nil
	}
	if p.nodes < 1 {
		return invalid("LocalQuota: among %d nodes; there is at least this one", p.nodes)
	}
	if err := p.rate.validate(); err != nil {
		return fmt.Errorf("%w (in LocalQuota)", err)
	}
	return nil
}

// inEngine returns p in the form that requests carry. It returns nil for FailClosed, so that most requests
// carry nothing.
func (p OutagePolicy) inEngine() *outage.Policy {
	if p.kind == outage.FailClosed {
		return nil
	}
	return &outage.Policy{Kind: p.kind, Rate: p.rate.permit(), Nodes: p.nodes}
}

func init() {
	outage.PolicyOf = func(p any) outage.Policy {
		if policy := p.(OutagePolicy).inEngine(); policy != nil {
			return *policy
		}
		return outage.Policy{Kind: outage.FailClosed}
	}
}

// OnOutage returns a handle of the same limiter whose requests follow p during an outage, instead of the policy of the
// Client.
func (l *RateLimiter) OnOutage(p OutagePolicy) *RateLimiter {
	handle := *l.made()
	handle.want.Policy = p.inEngine()
	if err := p.Validate(); err != nil && handle.err == nil {
		handle.err = err
	}
	return &handle
}
