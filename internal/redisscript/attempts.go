package redisscript

import (
	"math/rand/v2"
	"time"
)

// MaxAttempts is how often a script is sent when each attempt fails in a way that allows another.
const MaxAttempts = 4

// maxSending is how long after the first attempt another one begins at the latest.
const maxSending = 5 * time.Second

// Attempts are those made at one script, from Begin on.
type Attempts struct {
	Begin time.Time
	// Replay says that one of them may have run.
	Replay bool

	failed int
}

// Failed counts an attempt that ended with err. It answers what that says of the script, and whether it
// may be sent once more, as far as it is for this package to say: it has not run and failed, nor been
// sent too often or for too long.
func (a *Attempts) Failed(err error) (what Outcome, again bool) {
	a.failed++
	what = Classify(err)
	a.Replay = a.Replay || what == Unknown
	return what, what != Executed && a.failed < MaxAttempts && time.Since(a.Begin) <= maxSending
}

// Pause sleeps before the next attempt: about 10, 40, then 160 ms, unless one of the channels is closed
// first.
func (a *Attempts) Pause(one, other <-chan struct{}) { Sleep(backoff(a.failed), one, other) }

// backoff is the pause after the n-th attempt, ± half.
func backoff(n int) time.Duration {
	d := 10 * time.Millisecond << (2 * (min(n, MaxAttempts) - 1))
	return d/2 + rand.N(d)
}

// Sleep sleeps for d unless one of the channels is closed first.
func Sleep(d time.Duration, one, other <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-one:
	case <-other:
	}
}
