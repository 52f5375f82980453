package ratelimiter

import (
	"fmt"

	"github.com/goredisson/ratelimiter/internal/outage"
)

// An OutagePolicy says what becomes of requests for permits while Redis is known to be away: after the
// call that met the outage has made its attempts, which takes a fifth of a second and the time-outs of the
// redis client, and until a probe is answered. It decides nothing else. What Redis executed and answered
// with an error (WRONGTYPE, NOPERM, a limiter without a rate) is that error under every policy, an
// exhausted connection pool is ErrUnavailable under every policy, and Release, SetRate and the rest do not
// work without Redis.
//
// The zero value is FailClosed.
type OutagePolicy struct {
	kind  outage.Kind
	rate  Rate
	nodes int
}

// FailClosed grants nothing without Redis: who does not wait gets ErrUnavailable at once, who waits goes
// on waiting; see [WithOutageLimit]. For limits that must hold, such as those whose breach is answered by
// a ban.
func FailClosed() OutagePolicy { return OutagePolicy{} }

// FailOpen grants everything at once without Redis. For limits that only smooth the load: while Redis is
// away there is none. Only a cool-down that this process knows of still holds requests back.
func FailOpen() OutagePolicy { return OutagePolicy{kind: outage.FailOpen} }

// LocalShare grants this process its share of the rate without Redis: floor(permits / nodes) in any
// interval, from a log of its own, where nodes is how many processes use the limiter at most. The rate is
// the one that Redis told this process last for the limiter, r until then. Callers that wait are served
// first come, first served, within their timeout and context; requests that do not wait are refused as
// long as others wait. A request for more than the share is ErrUnavailable with the numbers. Where the
// rate has fewer permits than there are nodes the share is none, which is FailClosed: one permit each
// would exceed the rate. Of a [PerClient] limiter the permits are this client's alone: nodes is 1.
//
// It is made for the window to hold. Permits that Redis granted to anybody just before the outage still
// count, so the share begins one interval after the outage has become known: limits of long intervals are
// closed for as long. When Redis is back, what was granted without it in the last interval is charged
// there, at the instants at which it was granted, before anything more is asked for. So where every
// process loses Redis, has this policy and nodes is right, no window holds more than the rate, but:
//
//   - a process to which Redis comes back before others cannot know what these have granted and not yet
//     charged. They charge it when they next ask for permits after their next probe, at most 1.25 s
//     later. Until then a window may hold the rate and their shares, less than twice the rate;
//   - a process that loses Redis while others keep it (a network that is split) adds its share to the
//     rate, and so do Redisson's clients, which know no shares;
//   - a Redis that comes back without its data does not know its own grants. What this process granted is
//     charged when the limiter has a rate again, as far as it still counts then.
//
// With [Rate].MinGap the share is paced at nodes gaps a permit.
func LocalShare(r Rate, nodes int) OutagePolicy {
	return OutagePolicy{kind: outage.LocalShare, rate: r, nodes: nodes}
}

// String is the policy as a log line wants it.
func (p OutagePolicy) String() string {
	switch p.kind {
	case outage.FailOpen:
		return "open"
	case outage.LocalShare:
		return fmt.Sprintf("local share of %v among %d", p.rate, p.nodes)
	}
	return "closed"
}

// Validate answers ErrInvalidArgument for a policy that cannot be: a share among less than one node, or
// of a rate that is none.
func (p OutagePolicy) Validate() error {
	if p.kind != outage.LocalShare {
		return nil
	}
	if p.nodes < 1 {
		return invalid("local share among %d nodes: there is at least this one", p.nodes)
	}
	if err := p.rate.validate(); err != nil {
		return fmt.Errorf("%w (of a local share)", err)
	}
	return nil
}

// inEngine returns p as requests carry it, nil for FailClosed: what most requests carry costs nothing.
func (p OutagePolicy) inEngine() *outage.Policy {
	if p.kind == outage.FailClosed {
		return nil
	}
	return &outage.Policy{Kind: p.kind, Rate: p.rate.permit(), Nodes: p.nodes}
}

// OnOutage is a handle of the same limiter whose requests follow p while Redis is away; those of l go on
// following theirs, and all stand in one line. A policy that is out of its range makes every call of the
// handle answer ErrInvalidArgument. The default is the policy of the Client; see [WithOutagePolicy].
func (l *RateLimiter) OnOutage(p OutagePolicy) *RateLimiter {
	handle := *l
	handle.policy = p.inEngine()
	if err := p.Validate(); err != nil && handle.err == nil {
		handle.err = err
	}
	return &handle
}
