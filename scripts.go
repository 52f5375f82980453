package ratelimiter

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
)

// This file is the only home of what the scripts take and answer: the order of KEYS and ARGV,
// milliseconds, and what a number in a reply means. Each script's header says the same, and
// TestScriptHeaders holds the three together.

var (
	//go:embed scripts/acquire.lua
	acquireSrc string
	//go:embed scripts/acquire_all.lua
	acquireAllSrc string
	//go:embed scripts/audit.lua
	auditSrc string
	//go:embed scripts/available.lua
	availableSrc string
	//go:embed scripts/give_back.lua
	giveBackSrc string
	//go:embed scripts/release.lua
	releaseSrc string
	//go:embed scripts/reserve.lua
	reserveSrc string
	//go:embed scripts/try_set_rate.lua
	trySetRateSrc string
	//go:embed scripts/set_rate.lua
	setRateSrc string
	//go:embed scripts/trim.lua
	trimSrc string
	//go:embed scripts/expire.lua
	expireSrc string
	//go:embed scripts/clear_expire.lua
	clearExpireSrc string
	//go:embed scripts/expire_time.lua
	expireTimeSrc string
	//go:embed scripts/delete.lua
	deleteSrc string
	//go:embed scripts/cool_down.lua
	coolDownSrc string
	//go:embed scripts/cool_down_until.lua
	coolDownUntilSrc string
	//go:embed scripts/lift_cool_down.lua
	liftCoolDownSrc string
)

// A script is one embedded file with the numbers of keys and arguments that its wrapper sends.
type script struct {
	*redisscript.Script
	resend resend
}

// resend says when a script may be sent again after an error.
type resend int

const (
	resendUnsent   resend = iota // only when it surely did not run
	resendAlways                 // it may run twice: it reads, or the second time changes nothing
	resendAsReplay               // it may run twice when told so: the acquire script, by the engine
)

func newScript(name, src string, keys, args int, r resend) *script {
	return &script{redisscript.New(name, src, keys, args), r}
}

// letOut says that the last n arguments may be left out.
func (s *script) letOut(n int) *script {
	s.LetOut(n)
	return s
}

var (
	acquireScript       = newScript("acquire", acquireSrc, 3, 10, resendAsReplay).letOut(5)
	acquireAllScript    = newScript("acquire_all", acquireAllSrc, 3*scriptParts, 4+scriptParts, resendAsReplay)
	auditScript         = newScript("audit", auditSrc, 3, 6, resendAlways)
	availableScript     = newScript("available", availableSrc, 3, 5, resendAlways)
	giveBackScript      = newScript("give_back", giveBackSrc, 3, 4, resendAlways)
	releaseScript       = newScript("release", releaseSrc, 3, 4, resendUnsent)
	reserveScript       = newScript("reserve", reserveSrc, 3, 7, resendAsReplay)
	trySetRateScript    = newScript("try_set_rate", trySetRateSrc, 1, 5, resendUnsent)
	setRateScript       = newScript("set_rate", setRateSrc, 5, 7, resendUnsent)
	trimScript          = newScript("trim", trimSrc, 3, 2, resendUnsent)
	expireScript        = newScript("expire", expireSrc, 5, 3, resendUnsent)
	clearExpireScript   = newScript("clear_expire", clearExpireSrc, 5, 0, resendUnsent)
	expireTimeScript    = newScript("expire_time", expireTimeSrc, 1, 0, resendAlways)
	deleteScript        = newScript("delete", deleteSrc, 5, 0, resendUnsent)
	coolDownScript      = newScript("cool_down", coolDownSrc, 3, 6, resendAlways)
	coolDownUntilScript = newScript("cool_down_until", coolDownUntilSrc, 1, 1, resendAlways)
	liftCoolDownScript  = newScript("lift_cool_down", liftCoolDownSrc, 3, 2, resendAlways)
)

// The first number of a reply.
const (
	statusOK = iota
	statusNotInitialized
	statusOtherType
	statusExceeds
	statusMalformed
	statusStartOver
)

// What an acquire's answer says of being sent again.
const (
	againNot = iota
	againRest
	againAudit
	againWalk
)

// ARGV[5] of acquire, ARGV[6] of set_rate, and ARGV[5] of reserve.
const (
	flagReplay  = 1
	flagCheck   = 2
	flagMark    = 4
	flagInOrder = 8
	flagProbe   = 16
	flagNoTTL   = 32
	flagLowered = 64

	flagMustExist = 1
	flagKeepState = 2
	flagSetLc0I   = 4

	flagWhole  = 1
	flagUnsure = 2
)

// A tally is how far an audit has counted.
type tally struct {
	oldest, newest string
	members        int64
	permits        int64
}

// auditStep is how many members one audit call reads: a third of a millisecond.
const auditStep = 1000

// A balance is what an audit found: value + used − rate, and value as it left it, which makes up the rate with
// what is in use.
type balance struct{ surplus, value int64 }

// runAudit goes on counting from t. When it is done it returns what it found.
func (l *RateLimiter) runAudit(ctx context.Context, typ RateType, t tally) (next tally, done bool, found balance, err error) {
	raw, err := l.send(ctx, auditScript, l.keys.of(typ), typ.wire(), auditStep, t.oldest, t.newest, t.members, t.permits)
	if err != nil {
		return tally{}, false, balance{}, err
	}
	r, ok := raw.([]any)
	if !ok || len(r) == 0 {
		return tally{}, false, balance{}, l.badReply(auditScript, raw)
	}
	var head []int64
	for _, v := range r[:min(len(r), 2)] {
		n, ok := v.(int64)
		if !ok {
			return tally{}, false, balance{}, l.badReply(auditScript, raw)
		}
		head = append(head, n)
	}
	switch {
	case head[0] == statusStartOver:
		return tally{}, false, balance{}, nil
	case head[0] != statusOK:
		return tally{}, false, balance{}, l.statusError(head)
	case len(r) == 4 && head[1] == 1:
		var ok1 bool
		found.surplus, ok1 = r[2].(int64)
		found.value, ok = r[3].(int64)
		ok, done = ok && ok1, true
	case len(r) == 6:
		var ok1, ok2, ok3, ok4 bool
		next.oldest, ok1 = r[2].(string)
		next.newest, ok2 = r[3].(string)
		next.members, ok3 = r[4].(int64)
		next.permits, ok4 = r[5].(int64)
		ok = ok1 && ok2 && ok3 && ok4
	default:
		ok = false
	}
	if !ok {
		return tally{}, false, balance{}, l.badReply(auditScript, raw)
	}
	return next, done, found, nil
}

// statusError turns the first number of a reply into an error; statusOK is none.
func (l *RateLimiter) statusError(r []int64) error {
	switch r[0] {
	case statusOK:
		return nil
	case statusNotInitialized:
		return fmt.Errorf("%w: %q has no rate; call TrySetRate first", ErrNotInitialized, l.name)
	case statusOtherType:
		if len(r) > 1 && (r[1] == int64(Overall) || r[1] == int64(PerClient)) {
			return &otherTypeError{RateType(r[1])}
		}
		return fmt.Errorf("%w: the type of %q is neither OVERALL nor PER_CLIENT", ErrMalformed, l.name)
	case statusMalformed:
		return fmt.Errorf("%w: the rate or interval of %q is no positive whole number", ErrMalformed, l.name)
	}
	return fmt.Errorf("ratelimiter: %q: unexpected status in reply %v", l.name, r)
}

// otherTypeError says that the keys sent were not those of the hash's type. Callers never see it.
type otherTypeError struct{ typ RateType }

func (e *otherTypeError) Error() string { return "ratelimiter: the limiter is " + e.typ.String() }

func (l *RateLimiter) badReply(s *script, r any) error {
	return fmt.Errorf("ratelimiter: %s of %q: unexpected reply %v", s.Name, l.name, r)
}

// run sends a script whose reply is numbers.
func (l *RateLimiter) run(ctx context.Context, s *script, keys []string, args ...any) ([]int64, error) {
	raw, err := l.send(ctx, s, keys, args...)
	if err != nil {
		return nil, err
	}
	return l.numbers(s, raw)
}

func (l *RateLimiter) numbers(s *script, raw any) ([]int64, error) {
	if n, ok := raw.(int64); ok {
		return []int64{n}, nil
	}
	list, ok := raw.([]any)
	if !ok || len(list) == 0 {
		return nil, l.badReply(s, raw)
	}
	r := make([]int64, len(list))
	for i, v := range list {
		if r[i], ok = v.(int64); !ok {
			return nil, l.badReply(s, raw)
		}
	}
	return r, nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
