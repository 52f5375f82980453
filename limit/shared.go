// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/redis/go-redis/v9"
)

// A Shared is a limiter in Redis that all processes share which use its name, key, algorithm and parameters. Other
// parameters make another limiter, so during a rolling update the old and the new processes each have a limit of their own;
// only a [CalendarQuota], and any limiter with [WithFleetParameters], is the same one with other numbers.
//
// # Calls
//
// A request runs one script. Requests for one key that arrive while a call of this process is in flight wait for its
// reply and then share a call, in their order. A request whose ctx ends returns at once; the others go on. Callers of
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
// failed, or 10 ms or more without a reply). It returns ratelimiter.ErrMalformed if a key holds something that no limiter
// writes, ratelimiter.ErrDenied if the ACL of Redis rejects the call, and every other error that Redis replies with. An error contains the first eight hexadecimal digits of the key's
// SHA-256, and not the key, which may be a token. [WithOutagePolicy] says what happens in an outage.
//
// A call that certainly did not run is sent again, up to four times within five seconds. So is one whose reply was lost: Redis
// remembers the last grant of each process for ten seconds, in up to 8 KB or about 300 processes a key, so that the second
// call returns the first one's grant and takes nothing (see [WithoutReplay]). If Redis cannot tell any more whether it ran,
// or ctx ends while it is in flight, the request returns ratelimiter.ErrUnavailable and its permits may have been taken,
// once. They are taken twice only if the clock of Redis is put forward by ten seconds at that moment, or the network
// delivers the first call ten seconds after the second; even then no more than the bound is granted.
//
// # Time and keys
//
// If the clock of Redis is put back, no more than the bound is granted, and the wait for that is no longer than an
// unused limiter takes to fill, or than what is owed. If it is put forward, that time has passed for the limiter. Every key
// has a TTL, and is deleted a minute after it would be full again. Grants that Redis loses are not counted.
//
// The zero value is not usable; call [NewShared]. A call of a Shared that NewShared did not return, or of nil, returns
// ratelimiter.ErrInvalidArgument. Its methods are safe for concurrent use.
type Shared struct {
	config *config
	key    string
	keys   []string
	slot   string   // where what is known of the key is kept, and its queue
	own    *setting // of With; nil for that of config
	err    error    // why it cannot be used
}

// A config is what the limiters of all keys share.
type config struct {
	rdb           dispatch.Sender
	name          string
	signature     string
	current       atomic.Pointer[setting]
	fleet         *fleet           // nil without WithFleetParameters
	clock         func() time.Time // nil for that of Redis
	withoutReplay bool
	withoutKnown  bool
	hooks         []ratelimiter.Hook
	outages       outages
	err           error // of an option

	ids    ids
	lines  lines
	known  known
	cache  handles
	queues queues
}

// An Option configures a [Shared].
type Option func(*config)

// WithClientClock makes the limiter use the clock of this process. It is for tests with virtual time: a clock
// that differs from those of other processes changes what is granted. The default is the clock of Redis.
func WithClientClock() Option { return func(c *config) { c.clock = time.Now } }

// WithoutReplay makes Redis remember no grants of the limiter's calls. A call whose reply is lost is then not
// sent again: it returns ratelimiter.ErrUnavailable, and its permits may have been taken, once. It saves some 30
// bytes of a key for each process that was granted permits of it in the last ten seconds, and a little of the
// time that a granted call takes in Redis. It does not change the calls of other processes that share the
// limiter. The default is to remember the grants.
func WithoutReplay() Option { return func(c *config) { c.withoutReplay = true } }

// WithoutCachedRejections takes no bound, unlike ratelimiter.WithCachedRejections, because the limiter asks about a key that
// has no permits once a second anyway. It makes the limiter ask Redis for each request, also when it knows that Redis would reject it. Use it
// if keys are deleted, or the clock of Redis is put forward, and the effect must be seen at once rather than within a
// second. The default is to reject without a call if the rejection is known.
func WithoutCachedRejections() Option { return func(c *config) { c.withoutKnown = true } }

// WithSeparateCalls is [ratelimiter.WithSeparateCalls] for the redis client of the limiter.
func WithSeparateCalls() Option { return func(c *config) { dispatch.Separate(c.rdb) } }

// NewShared returns the limiter of that name in rdb, which is a redis.Client, ClusterClient, Ring or failover
// client and is not closed by the limiter. NewShared sends nothing. It returns ratelimiter.ErrInvalidArgument
// if rdb, an option or a is nil, a parameter of a is out of its range, or the name is empty or contains braces.
//
// On a Ring a limiter stays on its shard, as the limiters of a ratelimiter.Client do. While the shard is down
// its calls return ratelimiter.ErrUnavailable; it does not begin anew on another shard, unless SetAddrs has changed the shards
// since the Ring was made.
func NewShared(rdb redis.UniversalClient, name string, a Algorithm, opts ...Option) (*Shared, error) {
	if dispatch.IsNil(rdb) {
		return nil, invalid("the redis client is nil")
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	a, err := checked(a)
	if err != nil {
		return nil, err
	}
	first := newSetting(a)
	c := &config{rdb: dispatch.Of(rdb), name: name, signature: signature(first)}
	for _, o := range opts {
		if o == nil {
			return nil, invalid("NewShared was called with an Option that is nil")
		}
		o(c)
	}
	if c.err != nil {
		return nil, c.err
	}
	if c.fleet != nil {
		c.signature = fleetSignature(first)
	}
	c.current.Store(first)
	return c.cache.get(c, "", nil), nil
}

// Algorithm returns the algorithm of the limiter, with the parameters that are in force as far as the process knows: a value, also if
// NewShared got a pointer to it. That of a handle of [Shared.With] is a [GCRA].
func (s *Shared) Algorithm() Algorithm {
	if !s.made() {
		return nil
	}
	return s.now().algorithm
}

// Keys returns the names of all keys in Redis that have the state of the limiter.
func (s *Shared) Keys() []string {
	if !s.made() {
		return nil
	}
	return slices.Clone(s.redisKeys(s.now()))
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

// errNotShared is the error of a Shared that is nil or the zero value.
var errNotShared = invalid("the Shared is not one that NewShared returned")

// Allow implements [Limiter].
func (s *Shared) Allow(ctx context.Context, n int64) (ratelimiter.Result, error) {
	if err := s.unusable(); err != nil {
		return ratelimiter.Result{}, err
	}
	if len(s.config.hooks) == 0 { // asked would do the same, but a rejection that is known takes a fifth less time so
		return s.ask(ctx, demand{n: n, spend: true})
	}
	return s.config.asked(ctx, ratelimiter.OperationAllow, n, func() (ratelimiter.Result, error) {
		return s.ask(ctx, demand{n: n, spend: true})
	})
}

// Peek implements [Limiter].
func (s *Shared) Peek(ctx context.Context, n int64) (ratelimiter.Result, error) {
	if err := s.unusable(); err != nil {
		return ratelimiter.Result{}, err
	}
	return s.config.asked(ctx, ratelimiter.OperationPeek, n, func() (ratelimiter.Result, error) { return s.peek(ctx, n) })
}

// Reserve takes n permits if they may be used within atMost. When they are granted, the caller must wait for
// Result.Wait before it uses them; permits that it then does not use are not given back. A limiter whose algorithm grants
// nothing in advance behaves as in Allow. Reserve returns the errors of Allow.
func (s *Shared) Reserve(ctx context.Context, n int64, atMost time.Duration) (ratelimiter.Result, error) {
	if err := s.unusable(); err != nil {
		return ratelimiter.Result{}, err
	}
	return s.config.asked(ctx, ratelimiter.OperationReserve, n, func() (ratelimiter.Result, error) { return s.reserve(ctx, n, atMost, nil) })
}

// AllowAtMost takes as many of n permits as there are now, and returns how many, 0 to n. Result.Granted reports whether that
// is more than 0, and after 0 Result.Wait is how long one permit takes. It is for work that comes in batches of any size: n may
// be more than one call can get, up to 2^32-1. It has the errors of Allow, and returns ratelimiter.ErrInvalidArgument for a limiter whose calls
// are not the sum of calls for one permit each: a [DebtBucket], and those that grant in advance.
func (s *Shared) AllowAtMost(ctx context.Context, n int64) (permits int64, r ratelimiter.Result, err error) {
	if err := s.unusable(); err != nil {
		return 0, ratelimiter.Result{}, err
	}
	if err := checkParts(s.now()); err != nil {
		return 0, ratelimiter.Result{}, err
	}
	r, err = s.config.asked(ctx, ratelimiter.OperationAllow, n, func() (ratelimiter.Result, error) {
		return s.ask(ctx, demand{n: n, spend: true, taken: &permits})
	})
	if err != nil || !r.Granted {
		return 0, r, err
	}
	return permits, r, nil
}

// checkParts returns an error for an algorithm whose call for n permits is not n calls for one.
func checkParts(n *setting) error {
	if _, debt := n.algorithm.(DebtBucket); debt || n.reserves {
		return invalid("AllowAtMost: a %T grants no part of what is asked for", n.algorithm)
	}
	return nil
}

// peek is Peek without the Hooks.
func (s *Shared) peek(ctx context.Context, n int64) (ratelimiter.Result, error) {
	return s.ask(ctx, demand{n: n})
}

// reserve is Reserve without the Hooks. The mark of a grant goes to m, unless that is nil.
func (s *Shared) reserve(ctx context.Context, n int64, atMost time.Duration, m *mark) (ratelimiter.Result, error) {
	q := demand{n: n, spend: true, mark: m}
	if s.config.now().reserves {
		q.atMost = atMostMicros(atMost)
	}
	return s.ask(ctx, q)
}

func (s *Shared) ask(ctx context.Context, q demand) (ratelimiter.Result, error) {
	if err := contextError(ctx); err != nil {
		return ratelimiter.Result{}, err
	}
	if err := q.check(&s.now().model); err != nil {
		return ratelimiter.Result{}, err
	}
	if r, _, ok := s.config.rejected(s.slot, q); ok && !s.down() {
		return r, nil
	}
	return s.batch(ctx, q)
}

// label returns what errors call the limiter: its name and, since the key may be long or a secret, the first digits
// of the key's SHA-256.
func (s *Shared) label() string {
	if s.key == "" {
		return s.String()
	}
	sum := sha256.Sum256([]byte(s.key))
	return fmt.Sprintf("%q for a key of hash %x", s.config.name, sum[:4])
}

// String returns the name of the limiter and its key.
func (s *Shared) String() string {
	if !s.made() {
		return "no limiter"
	}
	if s.key == "" {
		return fmt.Sprintf("%q", s.config.name)
	}
	return fmt.Sprintf("%q for %q", s.config.name, s.key)
}

var _ reserver = (*Shared)(nil)
