// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
)

// The witness of a Health alone begins and ends outages. It is one goroutine, which runs while there is a suspicion or an
// outage. It asks on a connection that it has just opened, so that neither the connections of the pool, some of which may be
// broken, nor a pool that is full decide.

// A Server is what a Health is about, as the owner of a call reaches it. Its methods are called without locks.
type Server interface {
	// Probe has the server carry out a write that changes nothing, on a connection of its own that is opened for it. It returns
	// nil if the server would have carried out a write of a call, and otherwise a *[retry.Error], which is Silent if something that
	// was sent has had no reply for as long as patience.
	Probe(patience time.Duration) error
	// Spares reports whether the redis client can spare the connection of an attempt that is given up, which stays in use until the
	// client's own time for a reply is up.
	Spares() bool
	// Sweep drops the idle connections of the pool that are broken. It may take some hundredths of a second.
	Sweep()
	// Done is closed when nothing more is to be asked.
	Done() <-chan struct{}
	// Began tells that an outage has begun, because of err. That of a limiter may be another server by now.
	Began(h *Health, err error)
	// Ended tells that the outage has ended, after so long and so many requests that policies granted.
	Ended(lasted time.Duration, granted int64)
}

const (
	// refusedFor is how long a server has to refuse connections or writes until that is an outage.
	refusedFor = 400 * time.Millisecond
	// refusedEvery is the pause until the witness asks a server again that has refused.
	refusedEvery = 100 * time.Millisecond
	// askedAgain is the least time from a reply to the witness until it asks again, because of another suspicion.
	askedAgain = 20 * time.Millisecond
	// probeEvery is how often the witness asks during an outage; up to a quarter is added.
	probeEvery = time.Second
	// prompt is the time within which a server that has been silent has to reply to end an outage. It is half of tooSlow, so
	// that one which is just fast enough does not go up and down.
	prompt = tooSlow / 2
)

// witness finds out whether s is down, and if it is, waits until it is up again. It begins at an instant.
func (h *Health) witness(s Server, begin time.Time) {
	sleep(s, time.Until(begin))
	for n := 0; ; {
		sent := time.Now()
		asked, err := ask(s)
		n += asked
		if isDone(s) {
			h.acquit(time.Time{})
			return
		}
		failure, _ := err.(*retry.Error)
		switch {
		case isDown(err) && !h.outageBegan(failure, n):
			sleep(s, refusedEvery)
			continue
		case h.Down():
			s.Began(h, failure.Err)
			h.waitForEnd(s, failure)
		default: // it has replied, or this process cannot ask
			if failure != nil && failure.Local {
				sent = time.Time{}
			}
			h.acquit(h.prepare(s, sent))
		}
		return
	}
}

// ask has the server asked, and if there is no reply for half as long as it may take, on a second connection as well: the first may
// be the one that got a dead server behind a load balancer. Either reply will do. It returns on how many it was asked: one that this
// process could not make does not count, and says nothing of the other.
func ask(s Server) (asked int, err error) {
	type reply struct {
		of  int
		err error
	}
	replies := make(chan reply, 2)
	probe := func(of int, patience time.Duration) { replies <- reply{of, s.Probe(patience)} }
	go probe(0, tooSlow)
	timer, end := time.NewTimer(tooSlow/2), time.Now().Add(tooSlow)
	defer timer.Stop()
	select {
	case r := <-replies:
		return 1, r.err
	case <-timer.C:
	}
	asked = 2
	go probe(1, tooSlow/2)
	var errs [2]error
	for range errs {
		select {
		case r := <-replies:
			failure, failed := r.err.(*retry.Error)
			switch {
			case !failed, failure.Outcome == retry.Executed, failure.Answered:
				return asked, r.err
			case failure.Local:
				asked--
				continue
			}
			errs[r.of] = r.err
			timer.Reset(max(time.Until(end), tooSlow/10)) // if both are silent, they are for long enough at about the same instant
		case <-timer.C: // the other is not even connected
		}
	}
	return asked, cmp.Or(errs[:]...)
}

// isDown reports whether the error of a probe is one of a server that is down.
func isDown(err error) bool {
	failure, failed := err.(*retry.Error)
	return failed && failure.Outcome != retry.Executed && !failure.Local
}

// outageBegan begins an outage if the server has refused for long enough, by a reply or on two of n connections, or has been silent,
// and reports whether that is decided: it also is if a call that was sent after the suspicion began has had a reply, or if the user is a
// wrong one.
func (h *Health) outageBegan(failure *retry.Error, n int) (decided bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case !failure.ReadOnly && h.answered.After(h.suspected), failure.Handshake && !h.known:
		return true
	case !failure.Silent && (n < 2 && !failure.Answered || now.Sub(h.suspected) < refusedFor):
		return false
	}
	h.err, h.since, h.granted = failure.Err, now, 0
	h.over = make(chan struct{})
	h.silent = time.Time{}
	h.down.Store(true)
	for _, c := range h.cohorts {
		if c.open > 0 && !c.Lasts {
			h.endLocked(c, failure.Err)
		}
	}
	h.judgedLocked()
	return true
}

// prepare readies the pool for the calls that go on when s is up, as the reply to a probe shows that was sent at an instant. It returns
// the instant before which attempts are lost that still have no reply; zero if none are.
func (h *Health) prepare(s Server, sent time.Time) (before time.Time) {
	if h.overdue(sent) && s.Spares() {
		before = sent
		sleep(s, settles)
	}
	s.Sweep()
	return before
}

// acquit ends a suspicion without an outage, and writes off the attempts that were sent before an instant.
func (h *Health) acquit(before time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.acquitted = now
	h.writeOffLocked(before, now)
	h.heardLocked(now)
	h.judgedLocked()
	h.armLocked(now)
}

// judgedLocked lets those go on who wait for the witness.
func (h *Health) judgedLocked() {
	close(h.verdict)
	h.verdict = nil
}

// waitForEnd asks s about once a second, until it is up. While the redis client does not let it ask, that costs nothing, and the
// witness looks more often.
func (h *Health) waitForEnd(s Server, failure *retry.Error) {
	asked := time.Now()
	for {
		pause, patience := ProbePause(), tooSlow
		if failure.Unsent {
			pause = refusedEvery
		}
		if failure.Silent {
			patience = prompt
		}
		sleep(s, time.Until(asked.Add(pause)))
		asked = time.Now()
		err := s.Probe(patience)
		again, failed := err.(*retry.Error)
		failed = failed && again.Outcome != retry.Executed
		if isDone(s) || !failed {
			break
		}
		failure = again
		h.mu.Lock()
		if !failure.Local {
			h.err = failure.Err
		}
		h.mu.Unlock()
	}
	var before time.Time
	if !isDone(s) {
		before = h.prepare(s, asked)
	}
	h.mu.Lock()
	now := time.Now()
	h.writeOffLocked(before, now)
	lasted, granted := now.Sub(h.since), h.granted
	h.err, h.failure = nil, nil
	h.heardLocked(now)
	h.down.Store(false)
	close(h.over)
	h.armLocked(now)
	h.mu.Unlock()
	if !isDone(s) {
		s.Ended(lasted, granted)
	}
}

// ProbePause returns the time from one probe to the next.
func ProbePause() time.Duration { return probeEvery + rand.N(probeEvery/4) }

// sleep sleeps for d, or until s is done.
func sleep(s Server, d time.Duration) { retry.SleepOr(d, s.Done(), nil) }

func isDone(s Server) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
