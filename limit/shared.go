// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/recent"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
)

// A Shared is a limiter in Redis that all processes share which use its name, key, algorithm and parameters. Other
// parameters make another limiter, so during a rolling update the old and the new processes each have a limit of their own;
// only a [CalendarQuota], and any limiter with [WithFleetParameters], is the same one with other numbers.
//
// # Calls
//
// A request runs one script. Requests for one key that arrive while a call of this process is in flight wait for its
// reply and then share a call. It decides requests for the same number of permits in their order, but all of these before a request
// for another number that came in between. A request whose ctx ends returns at once; the others go on. Callers of
// one process that wait form a queue; see [Wait].
//
// After a rejection the process rejects further requests for the key without a call until the permits are due, but
// for no longer than a second. So a key without permits costs Redis about one call a second from each process. If permits
// become free early, because a [Grant] is settled, the key is deleted, or the clock of Redis is put forward, that is noticed
// within the second. The process remembers rejections of 4,096 keys.
//
// # Errors
//
// No permits are granted with an error. A request returns ratelimiter.ErrUnavailable if Redis could not be asked or a hook
// of the client panicked; the error also wraps ctx.Err() if ctx was done before there was a reply (after an attempt that
// failed, or 10 ms or more without a reply). It returns ratelimiter.ErrMalformed if a key holds text that no limiter
// writes, Redis' own error (WRONGTYPE) if it holds another type, ratelimiter.ErrDenied if the ACL of Redis rejects the call, and every other error that Redis replies with. An error contains the first eight hexadecimal digits of the key's
// SHA-256, and not the key, which may be a token. [WithOutagePolicy] says what happens in an outage.
//
// A call that certainly did not run is sent again, up to four times within five seconds. So is one whose reply was lost: Redis
// remembers the last grant of each process for ten seconds, in up to 16 KB or about 300 processes a key, so that the second
// call returns the first one's grant and takes nothing (see [WithoutReplay]). If Redis cannot tell any more whether it ran,
// or ctx ends while it is in flight, the request returns ratelimiter.ErrUnavailable (ctx.Err() alone within 10 ms of the call) and
// its permits may have been taken, once. They are taken twice only if the clock of Redis is put forward by ten seconds at that moment, or the network
// delivers the first call ten seconds after the second; even then no more than the bound is granted.
//
// # Time and keys
//
// If the clock of Redis is put back, no more than the bound is granted, and the wait for that is no longer than an
// unused limiter takes to fill, or than what is owed; that for a [CalendarQuota] is no longer than the rest of the current period and
// the one after it. If it is put forward, that time has passed for the limiter. Every key
// has a TTL, and is deleted a minute after it would be full again. Grants that Redis loses are not counted.
//
// The zero value is not usable; call [NewShared]. A call of a Shared that NewShared did not return, or of nil, returns
// ratelimiter.ErrInvalidArgument. Its methods are safe for concurrent use.
type Shared struct {
	calls  calls.Shared
	config *config
	err    error // why it cannot be used
}

// A config is a limiter with what only its options and handles need.
type config struct {
	calls.Limiter
	fleet    *fleet                             // nil without WithFleetParameters
	handles  recent.Cache[handleKey, *Shared]   // that were asked for recently
	settings recent.Cache[GCRA, *calls.Setting] // of With
	err      error                              // of an option
}

// An Option configures a [Shared].
type Option func(*config)

// WithClientClock makes the limiter use the clock of this process. It is for tests with virtual time: a clock
// that differs from those of other processes changes what is granted. The default is the clock of Redis.
func WithClientClock() Option { return func(c *config) { c.Clock = time.Now } }

// WithoutReplay makes Redis remember no grants of the limiter's calls. A call whose reply is lost is then not
// sent again: it returns ratelimiter.ErrUnavailable, and its permits may have been taken, once. It saves some 30
// bytes of a key for each process that was granted permits of it in the last ten seconds, and a little of the
// time that a granted call takes in Redis. It does not change the calls of other processes that share the
// limiter. The default is to remember the grants.
func WithoutReplay() Option { return func(c *config) { c.WithoutReplay = true } }

// WithoutCachedRejections takes no bound, unlike ratelimiter.WithCachedRejections, because the limiter asks about a key that
// has no permits once a second anyway. It makes the limiter ask Redis for each request, also when it knows that Redis would reject it. Use it
// if keys are deleted, or the clock of Redis is put forward, and the effect must be seen at once rather than within a
// second. The default is to reject without a call if the rejection is known.
func WithoutCachedRejections() Option { return func(c *config) { c.WithoutKnown = true } }

// WithOutagePolicy sets the policy that decides requests during an outage of Redis; see ratelimiter.OutagePolicy for when one
// begins and ends. Requests are then decided at once, with Degraded set in their Result.
// Hooks get an event when an outage begins and when it ends.
//
//   - FailClosed: every request, also in [Wait], returns ratelimiter.ErrUnavailable at once.
//   - FailOpen: every request is granted at once.
//   - LocalQuota(r, nodes): the process grants floor(r.Permits / nodes) permits in any r.Interval, beginning one r.Interval
//     after the outage has become known. Choose an r that the limiter would admit in the long run, since r counts whatever the
//     algorithm is. Callers that wait do so until their time is up. A request for more than the quota returns
//     ratelimiter.ErrUnavailable.
//
// When Redis is back, the process takes what its local quota granted in the last r.Interval from the limiter, before the
// next call for the key, as [Grant.Settle] does; once, or twice if Redis fails again meanwhile. A limiter whose grants cannot
// be settled ([ErrCannotSettle]) does not count them: for one interval it may grant the quotas in addition.
//
// The default is FailClosed.
func WithOutagePolicy(p ratelimiter.OutagePolicy) Option {
	return func(c *config) {
		if err := p.Validate(); err != nil {
			c.err = err
			return
		}
		c.Policy = outage.PolicyOf(p)
	}
}

// WithHook adds a Hook that the limiter calls as a ratelimiter.Client does: once for each request, and once for each attempt
// at a call. The operation of [Shared.Allow] is OperationAllow, and that of [Wait] and [WaitTimeout] is OperationAcquire. The
// Hook gets the name of the limiter and never a key. For a request that is rejected without a call, Replied is false. If a
// Hook panics, the others get an event of kind ratelimiter.Panicked, and nothing else happens.
func WithHook(h ratelimiter.Hook) Option {
	return func(c *config) { c.Hooks = append(c.Hooks, h) }
}

// WithSeparateCalls is [ratelimiter.WithSeparateCalls] for the redis client of the limiter.
func WithSeparateCalls() Option { return func(c *config) { dispatch.Separate(c.Sender) } }

// NewShared returns the limiter of that name in rdb, which is a redis.Client, ClusterClient, Ring or failover
// client and is not closed by the limiter. NewShared sends nothing. It returns ratelimiter.ErrInvalidArgument
// if rdb, an option or a is nil, a parameter of a is out of its range, or the name is empty or contains braces.
//
// On a Ring a limiter stays on its shard, as the limiters of a ratelimiter.Client do. While the shard is down
// its calls return ratelimiter.ErrUnavailable; it does not begin anew on another shard, unless SetAddrs has changed the shards
// since the Ring was made.
func NewShared(rdb redis.UniversalClient, name string, a Algorithm, opts ...Option) (*Shared, error) {
	if dispatch.IsNil(rdb) {
		return nil, calls.Invalid("the redis client is nil")
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	a, err := checked(a)
	if err != nil {
		return nil, err
	}
	first := newSetting(a)
	c := &config{Limiter: calls.Limiter{Sender: dispatch.Of(rdb), Name: name, Signature: signature(first)}}
	c.Current.Store(first)
	for _, o := range opts {
		if o == nil {
			return nil, calls.Invalid("NewShared was called with an Option that is nil")
		}
		o(c)
	}
	if c.err != nil {
		return nil, c.err
	}
	if c.fleet != nil {
		c.Fleet, c.Signature = c.fleet, fleetSignature(first)
	}
	return c.handle("", nil), nil
}

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}") {
		return calls.Invalid("the name %q is empty or contains braces, which are kept for the hash tag", name)
	}
	return nil
}

// Algorithm returns the algorithm of the limiter, with the parameters that are in force as far as the process knows: a value, also if
// NewShared got a pointer to it. That of a handle of [Shared.With] is a [GCRA].
func (s *Shared) Algorithm() Algorithm {
	if !s.made() {
		return nil
	}
	return s.calls.Now().Algorithm.(Algorithm)
}

// Keys returns the names of all keys in Redis that have the state of the limiter, for the key of this handle alone.
func (s *Shared) Keys() []string {
	if !s.made() {
		return nil
	}
	return s.calls.Keys()
}

// made reports whether NewShared returned s, or the s that it is of.
func (s *Shared) made() bool { return s != nil && s.config != nil }

// unusable returns why s cannot be used, or nil.
func (s *Shared) unusable() error {
	if !s.made() {
		return errNotShared
	}
	return s.err
}

func (s *Shared) ask(ctx context.Context, op ratelimiter.Operation, q calls.Demand) (calls.Outcome, error) {
	n, err := s.setting()
	if err == nil && q.UpTo {
		err = checkParts(n)
	}
	if err != nil {
		return calls.Outcome{}, err
	}
	return s.calls.Request(ctx, op, q)
}

// setting returns the one that is in force as far as is known, or why s cannot be used.
func (s *Shared) setting() (*calls.Setting, error) {
	if err := s.unusable(); err != nil {
		return nil, err
	}
	return s.calls.Now(), nil
}

// errNotShared is the error of a Shared that is nil or the zero value.
var errNotShared = calls.Invalid("the Shared is not one that NewShared returned")

// Allow implements [Limiter].
func (s *Shared) Allow(ctx context.Context, n int64) (ratelimiter.Result, error) {
	o, err := s.ask(ctx, ratelimiter.OperationAllow, calls.Demand{N: n, Spend: true})
	return o.Result, err
}

// Peek implements [Limiter].
func (s *Shared) Peek(ctx context.Context, n int64) (ratelimiter.Result, error) {
	o, err := s.ask(ctx, ratelimiter.OperationPeek, calls.Demand{N: n})
	return o.Result, err
}

// Reserve takes n permits if they may be used within atMost. When they are granted, the caller must wait for
// Result.Wait before it uses them; permits that it then does not use are not given back. A limiter whose algorithm grants
// nothing in advance behaves as in Allow, and a negative atMost counts as 0. The deadline of ctx does not bound that wait.
// Reserve returns the errors of Allow.
func (s *Shared) Reserve(ctx context.Context, n int64, atMost time.Duration) (ratelimiter.Result, error) {
	o, err := s.ask(ctx, ratelimiter.OperationReserve, calls.Demand{N: n, AtMost: calls.AtMostMicros(atMost), Spend: true})
	return o.Result, err
}

// AllowAtMost takes as many of n permits as there are now, and returns how many, 0 to n. Result.Granted reports whether that
// is more than 0, and after 0 Result.Wait is how long one permit takes. It is for work that comes in batches of any size: n may
// be more than one call can get, up to 2^32-1. It has the errors of Allow, and returns ratelimiter.ErrInvalidArgument for a limiter whose calls
// are not the sum of calls for one permit each: a [DebtBucket], and those that grant in advance.
func (s *Shared) AllowAtMost(ctx context.Context, n int64) (permits int64, r ratelimiter.Result, err error) {
	o, err := s.ask(ctx, ratelimiter.OperationAllow, calls.Demand{N: n, Spend: true, UpTo: true})
	return o.Permits, o.Result, err
}

// checkParts returns an error for an algorithm whose call for n permits is not n calls for one.
func checkParts(n *calls.Setting) error {
	if _, debt := n.Algorithm.(DebtBucket); debt || n.Reserves {
		return calls.Invalid("AllowAtMost: a %T grants no part of what is asked for", n.Algorithm)
	}
	return nil
}

// String returns the name of the limiter and its key.
func (s *Shared) String() string {
	if !s.made() {
		return "no limiter"
	}
	return s.calls.String()
}

// Reset forgets what was taken of the limiter's key, for all processes, for instance after more of a used-up quota was bought.
// Other processes, and callers that wait there, notice within a second. Reset deletes the keys that [Shared.Keys] returns; a
// call that is in flight at that moment may take its permits twice.
//
// Reset returns the errors of a call, as [Shared] describes them. After an error the limiter may or may not have been reset.
func (s *Shared) Reset(ctx context.Context) error {
	if err := s.unusable(); err != nil {
		return err
	}
	return s.calls.Reset(ctx)
}

func (s *Shared) label() string { return s.calls.Label() }

func (s *Shared) settle(ctx context.Context, x *calls.Settlement) error {
	return s.calls.Settle(ctx, x)
}

var _ reserver = (*Shared)(nil)
