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

// A Shared is a limiter in Redis: all that use its name, subject and numbers share it. Other numbers make
// another limiter, so that while a fleet changes them each half is held to its own.
//
// Each call is one script. A call that surely did not run is sent again, up to four times within five
// seconds; a call whose reply was lost, too, with its id: when it had been granted the answer is that
// grant, and nothing is spent twice. For that Redis remembers the last 128 grants of each subject for a
// minute, unless [WithoutReplay]. Where more than those came in between, nobody can tell any more: then, as after the fourth
// attempt, the answer is ratelimiter.ErrUnavailable, and the permits may have been spent. So they may
// when ctx ends a call in flight.
//
// When the clock of Redis is put back, nothing is granted above the bound, and nobody waits longer for it
// than an unused limiter takes to get full, or than what is owed. When it is put forward, time has passed.
//
// Every key has a TTL: a minute from when the limiter is as new. What Redis loses, a limiter has not
// counted. It has no order of those who wait.
//
// Errors: ratelimiter.ErrUnavailable when Redis could not be asked, ratelimiter.ErrMalformed when a key
// holds something else, and what else Redis answers. An error is never a grant.
//
// The zero value is not usable; make one with [NewShared]. Its methods are safe for concurrent use.
type Shared struct {
	family  *family
	subject string
	keys    []string
}

// A family is what the limiters of all subjects have in common.
type family struct {
	rdb       dispatch.Sender
	name      string
	signature string
	algorithm Algorithm
	numbers   []any
	clock     func() time.Time // nil for that of Redis
	forgetful bool
}

// An Option configures a [Shared].
type Option func(*family)

// WithClientClock takes the time from this process. Then a clock that is fast or slow against the others'
// changes what is granted: it is for tests with virtual time. The default is the clock of Redis.
func WithClientClock() Option { return func(f *family) { f.clock = time.Now } }

// WithoutReplay has Redis remember no grants. Then a call whose reply was lost is not sent again, and still
// spends at most once: its answer is ratelimiter.ErrUnavailable, and the permits may have been spent. It
// saves the list of ids, which is a fifth to a third of a granted call's time in Redis and most of a
// subject's memory, 3 KB or more: for millions of subjects, of which none is worth much. It says nothing to others that
// share the limiter. The default is to remember.
func WithoutReplay() Option { return func(f *family) { f.forgetful = true } }

// noID is an id that the scripts do not keep.
const noID = "-"

// NewShared is the limiter of that name in rdb: a redis.Client, ClusterClient, Ring or failover client,
// which stays the caller's to close. It sends nothing. Errors: ratelimiter.ErrInvalidArgument for numbers
// out of their range and for a name that is empty or has braces.
//
// On a Ring a limiter stays on its shard, as those of a ratelimiter.Client do: while that is down it is
// ratelimiter.ErrUnavailable, and not a new limiter on another shard.
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
	f := &family{rdb: dispatch.Pin(rdb), name: name, signature: signature(a), algorithm: a, numbers: a.numbers()}
	for _, o := range opts {
		o(f)
	}
	return &Shared{family: f, keys: subjectKeys(name, "", f.signature)}, nil
}

// For is the same limiter for one subject: a user, an address, a tenant. Each has permits of its own, in
// keys of one hash slot. It is cheap and sends nothing; the empty subject is the limiter's own.
func (s *Shared) For(subject string) *Shared {
	return &Shared{family: s.family, subject: subject, keys: subjectKeys(s.family.name, subject, s.family.signature)}
}

// Algorithm is what the limiter was made with.
func (s *Shared) Algorithm() Algorithm { return s.family.algorithm }

// Keys are the names of the limiter's keys in Redis, all it ever has.
func (s *Shared) Keys() []string { return slices.Clone(s.keys) }

// Allow implements [Limiter].
func (s *Shared) Allow(ctx context.Context, n int64) (Result, error) {
	return s.ask(ctx, request{n: n, spend: true})
}

// Peek implements [Limiter].
func (s *Shared) Peek(ctx context.Context, n int64) (Result, error) {
	return s.ask(ctx, request{n: n})
}

// Reserve implements [Reserver].
func (s *Shared) Reserve(ctx context.Context, n int64, atMost time.Duration) (Result, error) {
	return s.ask(ctx, request{n: n, atMost: patience(atMost), spend: true})
}

func (s *Shared) ask(ctx context.Context, q request) (Result, error) {
	if err := ctx.Err(); err != nil { // the context first, then what is asked
		return Result{}, err
	}
	f := s.family
	if err := checkPermits(f.algorithm, q.n); err != nil {
		return Result{}, err
	}
	script := f.algorithm.script()
	var id []byte
	if q.spend && f.forgetful {
		id = []byte(noID)
	} else if q.spend {
		id = binary.NativeEndian.AppendUint64(make([]byte, 0, 8), rand.Uint64())
	}
	for tries := (retry.Attempts{Begin: time.Now()}); ; tries.Pause(ctx.Done(), nil) {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		cmd, err := script.Command(s.keys, f.arguments(q, id, &tries)...)
		if err != nil {
			return Result{}, err
		}
		reply, err := script.Once(ctx, f.rdb, cmd)
		if err == nil {
			return s.read(reply)
		}
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		what := dispatch.Classify(err)
		again := tries.Failed(what)
		if what == retry.Executed {
			return Result{}, fmt.Errorf("limit: %s of %s: %w", script.Name, s, err)
		}
		if !again || tries.Replay && q.spend && f.forgetful {
			return Result{}, fmt.Errorf("%w: %s of %s: %w", ratelimiter.ErrUnavailable, script.Name, s, err)
		}
	}
}

// arguments are what every script gets, and then its numbers.
func (f *family) arguments(q request, id []byte, tries *retry.Attempts) []any {
	args := make([]any, 0, 10)
	var now, age any = "", 0
	if f.clock != nil {
		now = f.clock().UnixMicro()
	}
	if tries.Replay {
		age = time.Since(tries.Begin).Microseconds() + 1
	}
	args = append(args, now, q.n, id, age)
	args = append(args, f.numbers...)
	if f.algorithm.reserves() {
		args = append(args, q.atMost)
	}
	return args
}

func (s *Shared) read(reply any) (Result, error) {
	list, _ := reply.([]any)
	var r [4]int64
	ok := len(list) == 1 || len(list) == len(r)
	for i := 0; ok && i < len(list); i++ {
		r[i], ok = list[i].(int64)
	}
	switch {
	case !ok:
	case len(list) == 1 && r[0] == -1:
		return Result{}, fmt.Errorf("%w: %s: a reply was lost, and too many have come since to tell whether it was a grant",
			ratelimiter.ErrUnavailable, s)
	case len(list) == 1 && r[0] == -2:
		return Result{}, fmt.Errorf("%w: %s: key %q is none of this limiter's", ratelimiter.ErrMalformed, s, s.keys[0])
	case len(list) == len(r) && (r[0] == 0 || r[0] == 1) && r[1] >= 0 && r[2] >= 0 && r[3] >= 0:
		return decision{granted: r[0] == 1, remaining: r[1], wait: r[2], reset: r[3]}.result(), nil
	}
	return Result{}, fmt.Errorf("limit: %s: unexpected reply %v", s, reply)
}

// String names the limiter and its subject.
func (s *Shared) String() string {
	if s.subject == "" {
		return fmt.Sprintf("%q", s.family.name)
	}
	return fmt.Sprintf("%q for %q", s.family.name, s.subject)
}

var _ Reserver = (*Shared)(nil)
