package limit

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// A Shared is a limiter in Redis, shared by all processes that use its name, subject, algorithm and
// parameters. Other parameters make another limiter: while a fleet is being changed from one to the other, each
// part of it is held to its own.
//
// Each call runs one script. A call that certainly did not run is sent again, up to four times in all and
// within five seconds. So is a call whose reply was lost, with the same id: Redis remembers the last 128
// grants of each subject for a minute, unless [WithoutReplay], and a call that is found among them returns
// that grant and takes nothing again. When so many grants or so much time have come in between that this can
// no longer be told, the call does not run again. It returns ratelimiter.ErrUnavailable, as it does after the
// fourth attempt, and its permits may have been taken, once. The same is true if ctx ends while the call is in
// flight.
//
// A call takes its permits twice only if the clock of Redis is put forward in that moment, or if the network
// delivers its first request after the reply to a later one. In neither case is more than the bound granted.
//
// When the clock of Redis is put back, no more than the bound is granted, and the wait for that is no longer
// than an unused limiter takes to be full again, or than what is owed. When it is put forward, that time has
// passed for the limiter.
//
// Every key has a TTL, which ends a minute after the limiter is as if it had never been used. Grants that
// Redis loses are not counted. Callers that wait are in no particular order.
//
// A call returns ratelimiter.ErrUnavailable if Redis could not be asked or a hook of the client panicked,
// ratelimiter.ErrMalformed if a key holds something that no limiter writes, and every other error that Redis
// replies with. No permits are granted with an error.
//
// The zero value is not usable; call [NewShared]. Its methods are safe for concurrent use.
type Shared struct {
	config  *config
	subject string
	keys    []string
}

// A config is what the limiters of all subjects share.
type config struct {
	rdb           dispatch.Sender
	name          string
	signature     string
	algorithm     Algorithm
	parameters    []any
	clock         func() time.Time // nil for that of Redis
	withoutReplay bool
}

// An Option configures a [Shared].
type Option func(*config)

// WithClientClock makes the limiter use the clock of this process. It is for tests with virtual time: a clock
// that differs from those of other processes changes what is granted. The default is the clock of Redis.
func WithClientClock() Option { return func(c *config) { c.clock = time.Now } }

// WithoutReplay makes Redis remember no grants of the limiter's calls. A call whose reply is lost is then not
// sent again: it returns ratelimiter.ErrUnavailable, and its permits may have been taken, once. It saves the
// list of ids, which is a fifth to a third of the time that a granted call takes in Redis and most of the
// memory of a subject, 3 KB or more; that matters with millions of subjects. It does not change the calls of
// other processes that share the limiter. The default is to remember the grants.
func WithoutReplay() Option { return func(c *config) { c.withoutReplay = true } }

// noID is an id that the scripts do not store.
const noID = "-"

// NewShared returns the limiter of that name in rdb, which is a redis.Client, ClusterClient, Ring or failover
// client and is not closed by the limiter. NewShared sends nothing. It returns ratelimiter.ErrInvalidArgument
// if a parameter of a is out of its range, or the name is empty or contains braces.
//
// On a Ring a limiter stays on its shard, as the limiters of a ratelimiter.Client do. While the shard is down
// its calls return ratelimiter.ErrUnavailable; it does not begin anew on another shard.
func NewShared(rdb redis.UniversalClient, name string, a Algorithm, opts ...Option) (*Shared, error) {
	if rdb == nil || a == nil {
		return nil, invalid("the redis client or the algorithm is nil")
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	c := &config{rdb: dispatch.Of(rdb), name: name, signature: signature(a), algorithm: a, parameters: a.parameters()}
	for _, o := range opts {
		o(c)
	}
	return &Shared{config: c, keys: subjectKeys(name, "", c.signature)}, nil
}

// For returns the limiter of one subject, such as a user, an address or a tenant. Each subject has its own
// permits, in two keys of one hash slot. The empty subject is that of the limiter that [NewShared] returns.
// For is cheap and sends nothing.
func (s *Shared) For(subject string) *Shared {
	return &Shared{config: s.config, subject: subject, keys: subjectKeys(s.config.name, subject, s.config.signature)}
}

// Algorithm returns the algorithm of the limiter.
func (s *Shared) Algorithm() Algorithm { return s.config.algorithm }

// Keys returns the names of all keys that the limiter uses in Redis.
func (s *Shared) Keys() []string { return slices.Clone(s.keys) }

// Allow implements [Limiter].
func (s *Shared) Allow(ctx context.Context, n int64) (Result, error) {
	return s.ask(ctx, demand{n: n, spend: true})
}

// Peek implements [Limiter].
func (s *Shared) Peek(ctx context.Context, n int64) (Result, error) {
	return s.ask(ctx, demand{n: n})
}

// Reserve implements [Reserver].
func (s *Shared) Reserve(ctx context.Context, n int64, atMost time.Duration) (Result, error) {
	return s.ask(ctx, demand{n: n, atMost: atMostMicros(atMost), spend: true})
}

func (s *Shared) ask(ctx context.Context, q demand) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	c := s.config
	if err := checkPermits(c.algorithm, q.n); err != nil {
		return Result{}, err
	}
	script := c.algorithm.script()
	var id []byte
	if q.spend && c.withoutReplay {
		id = []byte(noID)
	} else if q.spend {
		id = binary.NativeEndian.AppendUint64(make([]byte, 0, 8), rand.Uint64())
	}
	tries, since := retry.Attempts{Begin: time.Now()}, int64(first)
	for {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		cmd, err := script.Command(s.keys, c.arguments(q, id, since)...)
		if err != nil {
			return Result{}, err
		}
		reply, err := script.Once(ctx, c.rdb, cmd)
		if now, ok := undecided(reply); ok && err == nil && since == unknown {
			since = now - elapsed(tries.Begin)
			continue
		}
		if err == nil {
			return s.read(reply)
		}
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		failure := dispatch.Failure(err)
		again := tries.Failed(failure.Outcome) && !failure.Final
		if failure.Outcome == retry.Executed {
			return Result{}, fmt.Errorf("limit: %s of %s: %w", script.Name, s, err)
		}
		if !again || tries.Replay && q.spend && c.withoutReplay {
			return Result{}, fmt.Errorf("%w: %s of %s: %w", ratelimiter.ErrUnavailable, script.Name, s, err)
		}
		if tries.Replay && q.spend && since == first {
			since = unknown // without a pause, since it takes nothing: its id may soon be pushed out of the list
		} else {
			tries.Pause(ctx.Done(), nil)
		}
	}
}

// What a script is told of when its call was first sent, other than an instant before that.
const (
	first   = 0 // it is sent for the first time
	unknown = 1 // no instant before it was first sent is known by the clock of Redis
)

// undecided reports whether the script replied that it cannot tell whether its call has run before, and
// returns the time of that reply.
func undecided(reply any) (now int64, ok bool) {
	list, _ := reply.([]any)
	if len(list) != 2 || list[0] != int64(-1) {
		return 0, false
	}
	now, ok = list[1].(int64)
	return now, ok
}

// elapsed returns the time since begin in µs, rounded up, by the monotonic clock or the wall clock, whichever
// says more: the first may stand still while the machine sleeps, and the second may be set.
func elapsed(begin time.Time) int64 {
	return max(time.Since(begin), time.Now().Round(0).Sub(begin.Round(0))).Microseconds() + 1
}

// arguments returns the arguments of every script, followed by the parameters of the algorithm. since is an
// instant before the call was first sent, or first or unknown.
func (c *config) arguments(q demand, id []byte, since int64) []any {
	args := make([]any, 0, 10)
	var now any = ""
	if c.clock != nil {
		now = c.clock().UnixMicro()
	}
	args = append(args, now, q.n, id, since)
	args = append(args, c.parameters...)
	if c.algorithm.reserves() {
		args = append(args, q.atMost)
	}
	return args
}

func (s *Shared) read(reply any) (Result, error) {
	list, _ := reply.([]any)
	var r [4]int64
	ok := len(list) == 1 || len(list) == 2 || len(list) == len(r)
	for i := 0; ok && i < len(list); i++ {
		r[i], ok = list[i].(int64)
	}
	switch {
	case !ok:
	case len(list) == 2 && r[0] == -1:
		return Result{}, fmt.Errorf("%w: the reply to a call of %s was lost, and whether it was granted can no longer be told: Redis remembers the last 128 grants, for a minute; its permits may have been taken",
			ratelimiter.ErrUnavailable, s)
	case len(list) == 1 && r[0] == -2:
		return Result{}, fmt.Errorf("%w: the key %q of %s holds what no limiter writes; delete it to begin anew", ratelimiter.ErrMalformed, s.keys[0], s)
	case len(list) == len(r) && (r[0] == 0 || r[0] == 1) && r[1] >= 0 && r[2] >= 0 && r[3] >= 0:
		return decision{granted: r[0] == 1, remaining: r[1], wait: r[2], reset: r[3]}.result(), nil
	}
	return Result{}, fmt.Errorf("limit: unexpected reply to a call of %s: %v", s, reply)
}

// String returns the name of the limiter and its subject.
func (s *Shared) String() string {
	if s.subject == "" {
		return fmt.Sprintf("%q", s.config.name)
	}
	return fmt.Sprintf("%q for %q", s.config.name, s.subject)
}

var _ Reserver = (*Shared)(nil)
