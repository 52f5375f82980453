package ratelimiter

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// A Client makes limiters that live in one Redis. Use one for each process and Redis: the limiters of
// one Client know of each other's callers, so that a release or a new rate wakes those that wait.
//
// It holds no connection, no goroutine and no finalizer of its own. Its methods are safe for
// concurrent use.
type Client struct {
	rdb    redis.UniversalClient
	cfg    config
	err    error // of the options; every call answers it
	closed chan struct{}
	once   sync.Once

	cluster bool
	seed    maphash.Seed
	hints   [256]atomic.Pointer[hint]

	mu    sync.Mutex
	rooms map[string]*room
}

// New is a Client on rdb: a redis.Client, ClusterClient, Ring or failover client, which stays the
// caller's to close. An option out of its range makes every call answer ErrInvalidArgument.
func New(rdb redis.UniversalClient, opts ...Option) *Client {
	c := &Client{
		rdb: rdb,
		cfg: config{
			clientID:     uuid.NewString(),
			nameMapper:   func(name string) string { return name },
			trusted:      true,
			memberFormat: MemberBc0I,
			clientKeyTTL: time.Hour,
			recheck:      time.Second,
		},
		closed: make(chan struct{}),
		seed:   maphash.MakeSeed(),
		rooms:  make(map[string]*room),
	}
	for _, o := range opts {
		o(&c.cfg)
	}
	c.err = c.cfg.validate()
	if rdb == nil && c.err == nil {
		c.err = invalid("the redis client is nil")
	}
	// Not a type switch: a client that embeds a ClusterClient is a cluster client too.
	_, c.cluster = rdb.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	})
	return c
}

// ID is the client's id, which names its own permits in a [PerClient] limiter.
func (c *Client) ID() string { return c.cfg.clientID }

// Close fails the callers that wait, and every later call, with ErrClosed. It leaves the redis client
// open and Redis as it is. It answers nil, also the second time.
func (c *Client) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// RateLimiter is the limiter of that name. It is cheap and sends nothing; limiters of the same name
// are the same limiter. A name that cannot be used makes every call of it answer ErrInvalidArgument
// or ErrNameNotClusterSafe.
func (c *Client) RateLimiter(name string) *RateLimiter {
	l := &RateLimiter{client: c, name: name, err: c.err}
	if l.err != nil {
		return l
	}
	mapped := c.cfg.nameMapper(name)
	if name == "" || mapped == "" {
		l.err = invalid("the name of a limiter is empty (%q, mapped to %q)", name, mapped)
		return l
	}
	l.keys = newKeys(mapped, c.cfg.clientID)
	if c.cluster {
		l.err = checkClusterSafe(mapped, c.cfg.clientID)
	}
	return l
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// now is the instant that scripts get: empty for that of Redis.
func (c *Client) now() any {
	if c.cfg.clientClock {
		return time.Now().UnixMilli()
	}
	return ""
}

// A hint is what a limiter's last call taught: which keys to send first, and when to look for lost
// permits again. Losing one costs a round trip, so they live in a table of fixed size and a hundred
// thousand names used once leave nothing behind.
type hint struct {
	name      string
	typ       RateType
	nextAudit time.Time
}

func (c *Client) slot(name string) *atomic.Pointer[hint] {
	return &c.hints[maphash.String(c.seed, name)%uint64(len(c.hints))]
}

func (c *Client) hint(name string) hint {
	if h := c.slot(name).Load(); h != nil && h.name == name {
		return *h
	}
	return hint{name: name}
}

// learn keeps h. Of two calls that learn at once one is forgotten, which costs a round trip.
func (c *Client) learn(h hint) { c.slot(h.name).Store(&h) }

// auditEvery is how often lost permits are looked for: once an interval, but no more often than every
// 50 ms, and every minute where the interval is longer, since a rate set elsewhere may have made it
// shorter.
func auditEvery(interval time.Duration) time.Duration {
	return min(max(interval, minAudit), time.Minute)
}

const minAudit = 50 * time.Millisecond

// claimAudit says whether the caller is to look for lost permits now. Of many callers refused at one
// instant one is.
func (c *Client) claimAudit(name string) bool {
	slot, now := c.slot(name), time.Now()
	old := slot.Load()
	h := hint{name: name}
	if old != nil && old.name == name {
		h = *old
	}
	if now.Before(h.nextAudit) {
		return false
	}
	h.nextAudit = now.Add(minAudit)
	return slot.CompareAndSwap(old, &h)
}

// A room is where the callers of one limiter wait in this process. It exists while somebody waits.
type room struct {
	guests int
	change chan struct{} // closed at the next change that this process makes
}

func (c *Client) enter(name string) *room {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rooms[name]
	if r == nil {
		r = &room{change: make(chan struct{})}
		c.rooms[name] = r
	}
	r.guests++
	return r
}

func (c *Client) leave(name string, r *room) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.guests--; r.guests == 0 {
		delete(c.rooms, name)
	}
}

// nextChange is closed at the next change. Take it before asking Redis: a change between the answer
// and the sleep must not be missed.
func (c *Client) nextChange(r *room) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.change
}

// wake lets those who wait for the limiter ask again at once.
func (c *Client) wake(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rooms[name]; r != nil {
		close(r.change)
		r.change = make(chan struct{})
	}
}

var (
	_ redis.UniversalClient = (*redis.Client)(nil)
	_ redis.UniversalClient = (*redis.ClusterClient)(nil)
	_ redis.UniversalClient = (*redis.Ring)(nil)

	_ func(*redis.FailoverOptions) *redis.Client        = redis.NewFailoverClient
	_ func(*redis.FailoverOptions) *redis.ClusterClient = redis.NewFailoverClusterClient
)
