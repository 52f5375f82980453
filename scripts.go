package ratelimiter

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
)

// This file is the only home of what the scripts take and answer: the order of KEYS and ARGV,
// milliseconds, and what a number in a reply means. Each script's header says the same, and
// TestScriptHeaders holds the three together.

var (
	//go:embed scripts/acquire.lua
	acquireSrc string
	//go:embed scripts/audit.lua
	auditSrc string
	//go:embed scripts/available.lua
	availableSrc string
	//go:embed scripts/give_back.lua
	giveBackSrc string
	//go:embed scripts/release.lua
	releaseSrc string
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
	acquireScript     = newScript("acquire", acquireSrc, 3, 9, resendAsReplay).letOut(4)
	auditScript       = newScript("audit", auditSrc, 3, 6, resendAlways)
	availableScript   = newScript("available", availableSrc, 3, 5, resendAlways)
	giveBackScript    = newScript("give_back", giveBackSrc, 3, 4, resendAlways)
	releaseScript     = newScript("release", releaseSrc, 3, 3, resendUnsent)
	trySetRateScript  = newScript("try_set_rate", trySetRateSrc, 1, 5, resendUnsent)
	setRateScript     = newScript("set_rate", setRateSrc, 5, 7, resendUnsent)
	trimScript        = newScript("trim", trimSrc, 2, 2, resendUnsent)
	expireScript      = newScript("expire", expireSrc, 5, 3, resendUnsent)
	clearExpireScript = newScript("clear_expire", clearExpireSrc, 5, 0, resendUnsent)
	expireTimeScript  = newScript("expire_time", expireTimeSrc, 1, 0, resendAlways)
	deleteScript      = newScript("delete", deleteSrc, 5, 0, resendUnsent)
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

// ARGV[5] of acquire, and ARGV[6] of set_rate.
const (
	flagReplay  = 1
	flagCheck   = 2
	flagMark    = 4
	flagInOrder = 8
	flagProbe   = 16
	flagNoTTL   = 32

	flagMustExist = 1
	flagKeepState = 2
)

// An ask is one acquire call.
type ask struct {
	typ           RateType
	id            requestID
	runs          []run // 1 to maxRuns
	replay        bool
	check         bool
	inOrder       bool
	probe         bool // take nothing
	noTTL         bool // the hash had none a moment ago
	walked        int64
	walkedPermits int64
}

// A run is a number of equal requests. In one call that number, and that of the runs, is bounded by
// what a replay has to look for.
type run struct {
	permits int64
	count   int64
	callers []*request // the engine's; nil where a caller left
}

const (
	maxRuns  = 128
	maxBatch = 1024
)

// An answer is what an acquire call says.
type answer struct {
	granted       []int64 // requests, by run; -1 where the permits exceed the rate
	wait          time.Duration
	available     int64
	now           time.Time
	rate          Rate
	again         int64
	walked        int64
	walkedPermits int64
	skew          time.Duration
	noTTL         bool // the hash had none; false also where the call did not look
}

func (l *RateLimiter) acquireCommand(a *ask) ([]any, error) {
	c := l.client
	flags := 0
	if a.replay {
		flags |= flagReplay
	}
	if a.check {
		flags |= flagCheck
	}
	if c.cfg.trusted {
		flags |= flagMark
	}
	if a.inOrder {
		flags |= flagInOrder
	}
	if a.probe {
		flags |= flagProbe
	}
	if a.noTTL {
		flags |= flagNoTTL
	}
	// Where it is too much for a member the script makes smaller ones.
	whole := uint32(min(a.runs[0].permits*a.runs[0].count, maxPermits))
	args := [9]any{a.typ.wire(), a.runs[0].permits, a.runs[0].count, encodeMember(c.cfg.memberFormat, a.id.run(0), whole), flags}
	n := 5
	if a.typ == PerClient || len(a.runs) > 1 || a.walked > 0 || c.cfg.clientClock {
		walk := ""
		if a.walked > 0 {
			walk = fmt.Sprint(a.walked, " ", a.walkedPermits)
		}
		args[5], args[6], args[7], args[8] = c.now(), furtherRuns(a.runs[1:]), c.cfg.clientKeyTTL.Milliseconds(), walk
		n = 9
	}
	return acquireScript.Command(l.keys.of(a.typ), args[:n]...)
}

// readAcquire reads the reply to a.
func (l *RateLimiter) readAcquire(a *ask, raw any) (answer, error) {
	r, err := l.numbers(acquireScript, raw)
	if err != nil {
		return answer{}, err
	}
	if (len(r) == 6 || len(r) == 7) && len(a.runs) == 1 && r[0] == statusOK {
		r[0] = a.runs[0].count
		return answer{
			granted:   r[:1:1],
			available: r[1],
			now:       time.UnixMilli(r[2]),
			rate:      Rate{Type: a.typ, Permits: r[3], Interval: ms(r[4]), KeepAlive: ms(r[5])},
			noTTL:     len(r) == 7 && r[6] == 0,
		}, nil
	}
	if r[0] == statusExceeds && len(r) == 2 {
		none := answer{granted: make([]int64, len(a.runs)), rate: Rate{Permits: r[1]}}
		for i := range none.granted {
			none.granted[i] = -1
		}
		return none, nil
	}
	if err := l.statusError(r); err != nil {
		return answer{}, err
	}
	if len(r) != 13+len(a.runs) {
		return answer{}, l.badReply(acquireScript, raw)
	}
	granted := r[1:2:2]
	if len(a.runs) > 1 {
		granted = append(granted, r[14:]...)
	}
	for i, n := range granted {
		if n < -1 || n > a.runs[i].count {
			return answer{}, l.badReply(acquireScript, raw)
		}
	}
	return answer{
		granted:       granted,
		wait:          ms(r[2]),
		available:     r[3],
		now:           time.UnixMilli(r[4]),
		rate:          Rate{Type: a.typ, Permits: r[5], Interval: ms(r[6]), KeepAlive: ms(r[7]), MinGap: ms(r[12])},
		again:         r[8],
		walked:        r[9],
		walkedPermits: r[10],
		skew:          ms(r[11]),
		noTTL:         r[13] == 0,
	}, nil
}

func furtherRuns(runs []run) string {
	if len(runs) == 0 {
		return ""
	}
	var b []byte
	for _, r := range runs {
		b = strconv.AppendInt(b, r.permits, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, r.count, 10)
		b = append(b, ' ')
	}
	return string(b)
}

func (l *RateLimiter) giveBackCommand(typ RateType, o orphan) ([]any, error) {
	f := l.client.cfg.memberFormat
	var smaller []byte
	if o.keeps > 0 {
		smaller = encodeMember(f, o.id, uint32(o.keeps))
	}
	return giveBackScript.Command(l.keys.of(typ), typ.wire(), encodeMember(f, o.id, uint32(o.had)), smaller, o.had-o.keeps)
}

// A tally is how far an audit has counted.
type tally struct {
	oldest, newest string
	members        int64
	permits        int64
}

// auditStep is how many members one audit call reads: a third of a millisecond.
const auditStep = 1000

// runAudit goes on counting from t. When it is done it answers value + used − rate as it was found.
func (l *RateLimiter) runAudit(ctx context.Context, typ RateType, t tally) (next tally, done bool, balance int64, err error) {
	raw, err := l.send(ctx, auditScript, l.keys.of(typ), typ.wire(), auditStep, t.oldest, t.newest, t.members, t.permits)
	if err != nil {
		return tally{}, false, 0, err
	}
	r, ok := raw.([]any)
	if !ok || len(r) == 0 {
		return tally{}, false, 0, l.badReply(auditScript, raw)
	}
	var head []int64
	for _, v := range r[:min(len(r), 2)] {
		n, ok := v.(int64)
		if !ok {
			return tally{}, false, 0, l.badReply(auditScript, raw)
		}
		head = append(head, n)
	}
	switch {
	case head[0] == statusStartOver:
		return tally{}, false, 0, nil
	case head[0] != statusOK:
		return tally{}, false, 0, l.statusError(head)
	case len(r) == 3 && head[1] == 1:
		balance, ok = r[2].(int64)
		done = true
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
		return tally{}, false, 0, l.badReply(auditScript, raw)
	}
	return next, done, balance, nil
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
