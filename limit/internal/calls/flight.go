// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A Flight is one call of a script, with the requests that it decides.
type Flight struct {
	Runs     []Run
	Requests int

	id    string    // of the call
	begun time.Time // when it was first sent
	since int64     // see First and Unknown
	tries retry.Attempts
}

// A Run is a number of equal requests, or one that takes what there is.
type Run struct {
	Demand
	Calls []*Request
}

// maxRuns and maxRequests bound a flight, and so the time that its script takes.
const (
	maxRuns     = 64
	maxRequests = 1024
)

// Add adds r to the run of its equals, and to a new one if there is none. Nobody can tell in which order requests
// came that wait for one flight, except that turns are given in that order. It reports false if f is full.
func (f *Flight) Add(r *Request, reserves bool) bool {
	if f.Requests == maxRequests || f.Requests > 0 && (r.settlement != nil || f.settlement() != nil || r.Setting != f.setting()) {
		return false
	}
	i := 0
	if reserves {
		i = max(0, len(f.Runs)-1)
	}
	for ; i < len(f.Runs); i++ {
		if f.Runs[i].Demand == r.Demand && !r.UpTo {
			break
		}
	}
	if i == maxRuns {
		return false
	}
	if i == len(f.Runs) {
		if i < cap(f.Runs) {
			f.Runs = f.Runs[:i+1] // with the slice of calls that it had
		} else {
			f.Runs = append(f.Runs, Run{})
		}
		f.Runs[i] = Run{r.Demand, f.Runs[i].Calls[:0]}
	}
	f.Runs[i].Calls = append(f.Runs[i].Calls, r)
	f.Requests++
	return true
}

func (f *Flight) reset() {
	for i := range f.Runs {
		clear(f.Runs[i].Calls)
		f.Runs[i].Demand = Demand{}
	}
	*f = Flight{Runs: f.Runs[:0]}
}

// Epoch returns what the state has of the id of f, if the limiter begins with it.
func (f *Flight) Epoch() Epoch { return EpochOf(f.id[1:]) }

// settlement returns the settlement that f makes, alone, or nil.
func (f *Flight) settlement() *Settlement { return f.Runs[0].settlement }

// setting returns by which setting all requests of f are decided.
func (f *Flight) setting() *Setting { return f.Runs[0].Calls[0].Setting }

// single reports whether f has one request, for all of its permits or none.
func (f *Flight) single() bool { return f.Requests == 1 && !f.Runs[0].UpTo }

// spends reports whether f can take permits.
func (f *Flight) spends() bool {
	for i := range f.Runs {
		if f.Runs[i].Spend {
			return true
		}
	}
	return false
}

// abandoned reports whether all callers have left.
func (f *Flight) abandoned() bool {
	for i := range f.Runs {
		for _, r := range f.Runs[i].Calls {
			if !r.left.Load() {
				return false
			}
		}
	}
	return true
}

// goOn makes the flights of those that are asked again and of those that wait, in a goroutine if there are any.
func (s *Shared) goOn(x *line, again []*Request) {
	if s.fill(x, again) {
		go s.flyAll(x)
	}
}

// flyAll makes the flights of x until nobody is left.
func (s *Shared) flyAll(x *line) {
	ended := false
	defer func() {
		if !ended { // a hook has ended the goroutine
			s.fail(&x.flight, s.unavailable(errGone))
			s.goOn(x, s.land(&x.flight))
		}
	}()
	for more := true; more; {
		f := &x.flight
		ctx := f.Runs[0].Calls[0].ctx
		if ctx.Done() != nil {
			ctx = context.WithoutCancel(ctx)
		}
		s.fly(ctx, f)
		again := s.land(f)
		if f.Requests > 1 {
			// The callers that have their outcomes may ask again at once. Let them, so that their
			// requests share the next flight.
			runtime.Gosched()
		}
		more = s.fill(x, again)
	}
	ended = true
}

// errGone reports that a hook has ended the goroutine of a call, as a test's hook does that calls t.FailNow.
var errGone = errors.New("a hook has ended the goroutine that made the call")

// fly makes the call of f. Then its requests have outcomes, or are to be asked again.
func (s *Shared) fly(ctx context.Context, f *Flight) {
	if x := f.settlement(); x != nil && x.done {
		return
	}
	err := s.reconcile(ctx)
	if err == nil {
		err = s.Make(ctx, f)
	}
	if err != nil {
		s.fail(f, err)
	}
}

// Make sends the call of f until there is a reply, and reads the outcomes of its requests from it.
func (s *Shared) Make(ctx context.Context, f *Flight) error {
	r, err := s.send(ctx, f)
	if err != nil {
		return err
	}
	if x := f.settlement(); x != nil {
		x.done = true
		if s.config.known.forget(s.slot); x.By < 0 {
			s.config.queues.look(s.slot)
		}
		return nil
	}
	return s.decide(f, r)
}

// fail makes err the outcome of the requests of f, or has the outage policy decide them.
func (s *Shared) fail(f *Flight, err error) {
	for i := range f.Runs {
		for _, r := range f.Runs[i].Calls {
			r.Outcome, r.err, r.Again = Outcome{}, err, false
			if errors.Is(err, ratelimiter.ErrUnavailable) && r.left.CompareAndSwap(false, true) {
				r.Outcome, r.err = s.decideLocally(r.Demand, err)
			}
		}
	}
}

// land tells the callers of f their outcomes, and returns the requests that have none.
func (s *Shared) land(f *Flight) (again []*Request) {
	for i := range f.Runs {
		for j, r := range f.Runs[i].Calls {
			f.Runs[i].Calls[j] = nil // the caller may use it again
			if r.Again {
				r.Again = false
				again = append(again, r)
			} else {
				if s.config.Fleet != nil {
					r.Mark.By = r.Setting
				}
				r.done <- struct{}{}
			}
		}
	}
	return again
}
