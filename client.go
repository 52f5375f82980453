// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/list"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/recent"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// A Client creates the limiters of one Redis. Use one Client per process and Redis: a release or a new rate wakes at
// once only the callers that wait in its own Client. Methods are safe for concurrent use.
type Client struct {
	cfg     config
	policy  *outage.Policy
	cluster bool
	redis   *redisson.Conn
	engine  *engine.Engine
	lists   *list.Lists
	hooks   hooks
	hooked  bool     // a Hook wants to know of requests
	setting sync.Map // *carriedSet by the key of the limiter
	once    sync.Once

	limiters recent.Cache[string, *RateLimiter] // that were asked for recently; none with a name mapper
}

// New returns a Client that uses rdb, which may be a redis.Client, a ClusterClient, a Ring, or a failover client. The
// caller remains responsible for closing rdb. New sends nothing to Redis. It returns ErrInvalidArgument if rdb is nil
// or an option is out of range.
//
// The limiters of a Ring never move to another shard because their own is down, unless SetAddrs has changed the shards:
// calls return ErrUnavailable or follow the [OutagePolicy]. Call New while all shards are up.
//
// Calls that arrive while others are in flight share a pipeline, for which go-redis runs ProcessPipelineHook. Add hooks
// to a ClusterClient or a Ring before you call New. See "Shared round trips" and "On a ring" in docs/design/engine.md.
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	c := &Client{
		cfg: config{
			clientID:     redisson.NewClientID().String(),
			nameMapper:   func(name string) string { return name },
			sharedClock:  true,
			clientKeyTTL: time.Hour,
			recheck:      time.Second,
			outageLimit:  30 * time.Second,
		},
	}
	for _, o := range opts {
		if o == nil {
			return nil, invalid("New was called with an Option that is nil")
		}
		o(&c.cfg)
	}
	if err := c.cfg.validate(); err != nil {
		return nil, err
	}
	if dispatch.IsNil(rdb) {
		return nil, invalid("New was called with a redis client that is nil")
	}
	c.policy = c.cfg.policy.inEngine()
	// Not a type switch, because a client that embeds a ClusterClient is a cluster client too.
	_, c.cluster = rdb.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	})
	_, ring := rdb.(interface {
		SetAddrs(addrs map[string]string)
	})
	c.cfg.divided = c.cfg.divided || c.cluster || ring
	c.hooks = c.cfg.hooks
	c.hooked = c.hooks.ofRequests()
	c.redis = redisson.NewConn(rdb, redisson.Config{
		ClientID:    c.cfg.clientID,
		Divided:     c.cfg.divided,
		Scripts:     &scripts,
		ClientClock: c.cfg.clientClock,
		SharedClock: c.cfg.sharedClock,
		LongLength:  c.cfg.longMembers,
		KeyTTL:      c.cfg.clientKeyTTL,
		Separate:    c.cfg.separate,
		Called:      c.hooks.called(),
		Mixed:       c.hooks.mixed(c.cfg.longMembers),
	})
	c.engine = engine.New(engine.Config{
		Backends:    c.redis,
		Recheck:     c.cfg.recheck,
		OutageLimit: c.cfg.outageLimit,
		RejectEarly: c.cfg.rejectEarly,
		Observe:     c.hooks.observe(),
	})
	c.lists = list.New(c.engine)
	c.hooks.started(ClientInfo{ID: c.cfg.clientID, Process: c.redis.Process()})
	return c, nil
}

// ID returns the client's id, which identifies its own permits in a [PerClient] limiter; see [WithClientID] and
// [ClientInfo].
func (c *Client) ID() string {
	if c == nil {
		return ""
	}
	return c.cfg.clientID
}

// OutagePolicy returns the policy that [WithOutagePolicy] set, or [FailClosed], for a middleware that makes decisions
// of its own.
func (c *Client) OutagePolicy() OutagePolicy {
	if c == nil {
		return FailClosed()
	}
	return c.cfg.policy
}

// Close fails the callers that wait, and every later call, with ErrClosed. It closes neither the redis client nor any
// limiter in Redis. It gives back permits that are granted to a caller afterwards, and waits at most one second for
// calls in flight; those that take longer end with the read timeout of the redis client. It always returns nil and may
// be called again.
func (c *Client) Close() error {
	if c != nil && c.engine != nil {
		c.once.Do(c.engine.Close)
	}
	return nil
}

// errNotMade is the error of a Client that is nil or the zero value.
var errNotMade = invalid("the Client is not one that New returned")

// RateLimiter returns the limiter with the given name. It sends nothing, and may be called for each request: for the
// last 4,096 names it allocates nothing, unless there is a [WithNameMapper]. If the name cannot be used, calls of the
// limiter return ErrInvalidArgument or ErrNameNotClusterSafe.
func (c *Client) RateLimiter(name string) *RateLimiter {
	if c == nil || c.engine == nil {
		return &RateLimiter{name: name, err: errNotMade}
	}
	if l, ok := c.limiters.Get(name); ok {
		return l
	}
	l := c.rateLimiter(name)
	if c.cfg.mapsNames || len(name) > maxRemembered {
		return l
	}
	return c.limiters.Add(strings.Clone(name), l)
}

// maxRemembered is how long the name of a limiter may be that a Client remembers.
const maxRemembered = 512

// rateLimiter returns a new value for the limiter with that name.
func (c *Client) rateLimiter(name string) *RateLimiter {
	l := &RateLimiter{client: c, name: name, want: engine.Request{Policy: c.policy, CachedFor: c.cfg.cachedFor}}
	mapped := c.cfg.nameMapper(name)
	if name == "" || mapped == "" {
		l.err = invalid("the name of a limiter is empty: %q, mapped to %q", name, mapped)
		return l
	}
	l.redis = c.redis.Limiter(mapped, name, c.cfg.clientID)
	l.handle = c.engine.Handle(mapped, name, &l.redis)
	if c.cluster {
		l.err = redisson.CheckClusterSafe(mapped, c.cfg.clientID)
	}
	return l
}

var (
	_ redis.UniversalClient = (*redis.Client)(nil)
	_ redis.UniversalClient = (*redis.ClusterClient)(nil)
	_ redis.UniversalClient = (*redis.Ring)(nil)

	_ func(*redis.FailoverOptions) *redis.Client        = redis.NewFailoverClient
	_ func(*redis.FailoverOptions) *redis.ClusterClient = redis.NewFailoverClusterClient
)

// pingTimeout is how long Ping waits for its reply.
const pingTimeout = 2 * time.Second

// Ping asks Redis for a reply and waits at most two seconds for it, and for DialTimeout and ReadTimeout more if a
// Sentinel does not reply. Call it when the program starts: it reports a wrong address, password or TLS setting at
// once, whereas requests that wait go on waiting as [WithOutageLimit] says. It asks any node of a cluster or shard of a
// ring, even during an outage, and neither begins nor ends one. It returns the common errors, such as ErrUnavailable.
func (c *Client) Ping(ctx context.Context) error {
	switch {
	case ctx == nil:
		return invalid("the context is nil")
	case c == nil || c.engine == nil:
		return errNotMade
	case ctx.Err() != nil:
		return ctx.Err()
	case c.engine.IsClosed():
		return ErrClosed
	}
	began := time.Now()
	err := c.redis.Ping(ctx, pingTimeout)
	failure, failed := err.(*retry.Error)
	switch {
	case !failed:
		if err == nil {
			c.engine.Replied()
		}
		return err
	case ctx.Err() != nil:
		return permit.Left("Ping", began, nil, ctx.Err())
	case failure.Outcome == retry.Executed || failure.Handshake:
		return fmt.Errorf("ratelimiter: Ping: %w", failure.Err)
	}
	if permit.IsShortage(failure.Err) {
		return permit.Overloaded("Ping", failure.Err)
	}
	return fmt.Errorf("%w: Ping: %w", ErrUnavailable, failure.Err)
}
