package ratelimiter

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
)

// A Client makes limiters that live in one Redis. Use one for each process and Redis: the limiters of
// one Client know of each other's callers, so that a release or a new rate wakes those that wait.
//
// While nobody acquires it holds no goroutine, and never a connection or a finalizer of its own. Its
// methods are safe for concurrent use.
type Client struct {
	cfg     config
	err     error // of the options; every call returns it
	policy  *outage.Policy
	cluster bool
	redis   *redisson.Conn
	engine  *engine.Engine
	once    sync.Once
}

// New is a Client on rdb: a redis.Client, ClusterClient, Ring or failover client, which stays the
// caller's to close. An option out of its range makes every call answer ErrInvalidArgument.
//
// A Ring sends the keys of a shard that fails three heartbeats, about 2 s, to other shards. The limiters of
// a Client stay where they are: while their shard is down they are ErrUnavailable or what their
// [OutagePolicy] says. For that New adds a hook to each shard. Make the Client while all shards are up.
func New(rdb redis.UniversalClient, opts ...Option) *Client {
	c := &Client{
		cfg: config{
			clientID:     uuid.NewString(),
			nameMapper:   func(name string) string { return name },
			sharedClock:  true,
			memberFormat: MemberBc0I,
			clientKeyTTL: time.Hour,
			recheck:      time.Second,
			outageLimit:  30 * time.Second,
		},
	}
	for _, o := range opts {
		o(&c.cfg)
	}
	c.err, c.policy = c.cfg.validate(), c.cfg.policy.inEngine()
	if rdb == nil && c.err == nil {
		c.err = invalid("the redis client is nil")
	}
	// Not a type switch: a client that embeds a ClusterClient is a cluster client too.
	_, c.cluster = rdb.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	})
	_, ring := rdb.(interface {
		SetAddrs(addrs map[string]string)
	})
	c.cfg.divided = c.cfg.divided || c.cluster || ring
	c.redis = redisson.NewConn(rdb, redisson.Config{
		Divided:     c.cfg.divided,
		Scripts:     &scripts,
		ClientClock: c.cfg.clientClock,
		SharedClock: c.cfg.sharedClock,
		LongLength:  c.cfg.memberFormat == MemberLc0I,
		KeyTTL:      c.cfg.clientKeyTTL,
	})
	c.engine = engine.New(engine.Config{
		Backends:    c.redis,
		Divided:     c.cfg.divided,
		Recheck:     c.cfg.recheck,
		OutageLimit: c.cfg.outageLimit,
		RefuseEarly: c.cfg.refuseEarly,
		Observe:     observe(c.cfg.observer),
	})
	c.redis.Closed, c.redis.Touched = c.engine.Closed(), c.engine.Touch
	return c
}

// ID is the client's id, which names its own permits in a [PerClient] limiter.
func (c *Client) ID() string { return c.cfg.clientID }

// Close fails the callers that wait, and every later call, with ErrClosed. It leaves the redis client
// open and Redis as it is: permits that were granted to a caller which Close failed are given back.
// For that, and for the end of calls in flight, it waits a second at most. Afterwards the Client has
// no timer and no goroutine but those of calls that Redis still does not answer: they end with the
// redis client's read timeout, as do callers whose context cannot end and who make their calls
// themselves. It answers nil, also the second time.
func (c *Client) Close() error {
	c.once.Do(c.engine.Close)
	return nil
}

// RateLimiter is the limiter of that name. It is cheap and sends nothing; limiters of the same name
// are the same limiter. A name that cannot be used makes every call of it answer ErrInvalidArgument
// or ErrNameNotClusterSafe.
func (c *Client) RateLimiter(name string) *RateLimiter {
	l := &RateLimiter{client: c, name: name, err: c.err, policy: c.policy}
	if l.err != nil {
		return l
	}
	mapped := c.cfg.nameMapper(name)
	if name == "" || mapped == "" {
		l.err = invalid("the name of a limiter is empty (%q, mapped to %q)", name, mapped)
		return l
	}
	l.redis = redisson.Limiter{Conn: c.redis, Name: name, Keys: redisson.NewKeys(mapped, c.cfg.clientID)}
	l.handle = c.engine.Handle(mapped, name, &l.redis)
	if c.cluster {
		l.err = redisson.CheckClusterSafe(mapped, c.cfg.clientID)
	}
	return l
}

func (c *Client) isClosed() bool {
	select {
	case <-c.engine.Closed():
		return true
	default:
		return false
	}
}

var (
	_ redis.UniversalClient = (*redis.Client)(nil)
	_ redis.UniversalClient = (*redis.ClusterClient)(nil)
	_ redis.UniversalClient = (*redis.Ring)(nil)

	_ func(*redis.FailoverOptions) *redis.Client        = redis.NewFailoverClient
	_ func(*redis.FailoverOptions) *redis.ClusterClient = redis.NewFailoverClusterClient
)
