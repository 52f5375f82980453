package redisson

import "github.com/goredisson/ratelimiter/internal/dispatch"

// A Script is one embedded file with the numbers of keys and arguments that this package sends.
type Script struct {
	*dispatch.Script
	resend Resend
}

// Resend says when a script may be sent again after an error.
type Resend int

const (
	ResendUnsent   Resend = iota // only when it surely did not run
	ResendAlways                 // it may run twice: it reads, or the second time changes nothing
	ResendAsReplay               // it may run twice when told so, as the acquire script is
)

// NewScript returns a script of that many keys and arguments.
func NewScript(name, src string, keys, args int, r Resend) *Script {
	return &Script{dispatch.New(name, src, keys, args), r}
}

// LetOut says that the last n arguments may be left out, and returns s.
func (s *Script) LetOut(n int) *Script {
	s.Script.LetOut(n)
	return s
}

// Scripts are all scripts of a limiter.
type Scripts struct {
	Acquire, AcquireAll, GiveBack, Reserve          *Script
	Audit, Trim                                     *Script
	TrySetRate, SetRate, Available, Release, Delete *Script
	Expire, ClearExpire, ExpireTime                 *Script
	CoolDown, CoolDownUntil, LiftCoolDown           *Script
	Inspect                                         *Script
}

// JointParts is how many limiters acquire_all takes: its keys are written out.
const JointParts = 6

// The first number of a reply.
const (
	statusOK = iota
	statusNotInitialized
	statusOtherType
	statusExceeds
	statusMalformed
	statusStartOver
)

// ARGV[5] of acquire, ARGV[6] of set_rate, and ARGV[5] of reserve.
const (
	flagReplay  = 1
	flagCheck   = 2
	flagMark    = 4
	flagInOrder = 8
	flagDryRun  = 16
	flagNoTTL   = 32
	flagLowered = 64

	flagMustExist = 1
	flagKeepState = 2
	flagLc0I      = 4

	flagWhole  = 1
	flagUnsure = 2
)
