// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"fmt"

	"github.com/goredisson/ratelimiter/internal/outage"
)

// An OutagePolicy decides requests for permits during an outage of Redis. What a call meets is only a suspicion: an
// attempt that fails, or half a second in which no call of the Client has had a reply. Then the Client itself asks the
// server, on a connection that it opens for this, with a write that changes nothing. An outage begins in one of two ways:
//
//   - The server refuses for 0.4 seconds: no connection, or an error such as LOADING, READONLY or OOM. That includes a
//     user that it does not let in, unless Redis has never let it in: then calls return that error at once.
//   - The server is silent for a second.
//
// If it replies, there is no outage, whatever has become of the connections of the pool.
//
// The policy also decides requests that are in flight when the outage begins. Once a second the Client asks again, on a
// new connection, and the first reply ends the outage; after a silence it has to come within half a second. Each master
// of a cluster and each shard of a ring has outages of its own.
//
// The policy decides nothing else. If Redis executed a call and replied with an error, such as WRONGTYPE, NOPERM or a
// limiter without a rate, the caller gets that error under every policy. If this process cannot send a call, for
// example because the connection pool is exhausted, the caller gets ErrOverloaded under every policy. Release,
// SetRate and the other methods do not work without Redis.
//
// The zero value is [FailClosed].
type OutagePolicy struct {
	kind  outage.Kind
	rate  Rate
	nodes int
}

// FailClosed returns the policy that grants nothing without Redis. Callers that do not wait get ErrUnavailable at
// once; callers that wait go on waiting as [WithOutageLimit] says. Use it for limits that must hold, such as those of
// an API that bans clients that exceed them.
func FailClosed() OutagePolicy { return OutagePolicy{} }

// FailOpen returns the policy that grants everything at once without Redis. During an outage there is no limit, so
// use it for limits that only smooth the load. Only a cool-down that this process knows of still holds requests back.
func FailOpen() OutagePolicy { return OutagePolicy{kind: outage.FailOpen} }

// LocalQuota returns the policy that grants this process its share of the rate without Redis. The share is
// floor(permits / nodes) permits in any interval, counted in a log of its own. The argument nodes is the largest
// number of processes that use the limiter. The rate is the last one that Redis reported to this process for the
// limiter, and r until then.
//
// Callers that wait are served first come, first served, within their timeout and context; requests that do not wait
// are rejected as long as others wait. A request for more than the share gets ErrUnavailable with the numbers. If the
// rate has fewer permits than there are nodes, the share is zero and the policy acts as FailClosed, because one
// permit for each process would exceed the rate. In a [PerClient] limiter the permits belong to this client alone, so
// nodes is 1. If [Rate].MinGap is set, the share is paced at nodes gaps per permit.
//
// A process counts the shares of up to 65,536 limiters at a time, and of up to 128 limiters whose keys hash alike. A
// request for a limiter beyond that gets ErrUnavailable until the grants of another limiter no longer count. So
// callers that make up names cannot exhaust the memory.
//
// LocalQuota is made so that the window holds. Permits that Redis granted to anybody just before the outage still
// count, so the share begins one interval after the outage has become known; a limiter with a long interval is closed
// for as long. When Redis is back, the process first charges to Redis what it granted in the last interval, dated at
// the instants of the grants, and only then asks for more.
//
// No window holds more than the rate if all processes lose Redis, all have this policy, and nodes is right. The
// exceptions are:
//
//   - A process that reaches Redis before others cannot know what the others have granted and not charged yet.
//     They charge it when they next ask for permits after they have found out, at most 1.25 s later. Until then a
//     window may hold the rate and their shares, which is less than twice the rate.
//   - A process that loses Redis while others keep it, as in a network partition, adds its share to the rate.
//     So do Redisson's clients, which know no shares.
//   - A Redis that comes back without its data does not know its own grants. The process charges what it granted
//     itself when the limiter has a rate again, as far as those grants still count then.
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

// Validate returns ErrInvalidArgument if p is a local quota with fewer than one node or a rate that is out of range,
// and nil otherwise.
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

// OnOutage returns a handle of the same limiter whose requests follow p during an outage. The requests of l keep
// their policy, and both wait in the same queue. If p is out of range, every call of the handle returns
// ErrInvalidArgument. The default is the policy of the Client; see [WithOutagePolicy].
func (l *RateLimiter) OnOutage(p OutagePolicy) *RateLimiter {
	handle := *l.made()
	handle.want.Policy = p.inEngine()
	if err := p.Validate(); err != nil && handle.err == nil {
		handle.err = err
	}
	return &handle
}
