package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A flight is one call on its way, with the requests that share it, and what follows from its reply: the rest of
// what one call does not do, the search for lost permits, and the refund of what nobody waits for any more. It
// belongs to the goroutine that flies it; the lock guards its callers.
type flight struct {
	permit.Batch
	callers     [][]*request // of each run; nil where a caller left
	limiter     *limiter
	ctx         context.Context // of the first request, without its end
	begin       time.Time
	changes     int  // the limiter's, when the flight left
	more        bool // it goes on with those who are left
	audit       bool // lost permits have to be looked for before
	audited     bool
	healthProbe bool // nobody's: it has been let to probe Redis
	inline      bool // in its caller's goroutine
	handedOff   bool // in another now, under the same ID
	local       *outage.Share
	ended       []*request
	unclaimed   []permit.Grant // grants, or parts of them, whose callers have left
}

func (f *flight) reset() {
	*f = flight{limiter: f.limiter, Batch: permit.Batch{Runs: f.Runs[:0]}, callers: f.callers, ended: f.ended[:0], unclaimed: f.unclaimed[:0]}
}

// appendLocked takes r into the last run, or into a new one; false when the flight is full.
func (f *flight) appendLocked(r *request) bool {
	i := len(f.Runs) - 1
	if i < 0 || f.Runs[i].Permits != r.permits {
		i++
	}
	return f.putLocked(i, r)
}

// takeTriesLocked takes as many of q as fit. Nobody can tell in which order they came, so equal ones share
// a run.
func (f *flight) takeTriesLocked(q *queue) {
	begin := len(f.Runs)
	for r := q.first; r != nil; r = q.first {
		i := begin
		for i < len(f.Runs) && f.Runs[i].Permits != r.permits {
			i++
		}
		if !f.putLocked(i, r) {
			return
		}
		r.unqueue()
		r.inFlight = true
	}
}

func (f *flight) putLocked(i int, r *request) bool {
	if i == permit.MaxRuns || f.size() == permit.MaxRequests {
		return false
	}
	if i == len(f.Runs) {
		f.Runs = append(f.Runs, permit.Run{Permits: r.permits})
		if i == len(f.callers) {
			f.callers = append(f.callers, nil)
		}
		f.callers[i] = f.callers[i][:0] // what the slot held before is used again
	}
	if f.ctx == nil {
		f.ctx = context.WithoutCancel(r.ctx)
	}
	f.callers[i] = append(f.callers[i], r)
	f.Runs[i].Count++
	return true
}

// size returns how many requests share the flight.
func (f *flight) size() (n int64) {
	for i := range f.Runs {
		n += f.Runs[i].Count
	}
	return n
}

// pruneLocked drops the callers that have their outcome, and the runs without any. It reports whether somebody is
// left.
func (f *flight) pruneLocked() bool {
	kept := 0
	for i := range f.Runs {
		rest := f.callers[i][:0]
		for _, r := range f.callers[i] {
			if r != nil && r.live() {
				rest = append(rest, r)
			}
		}
		clear(f.callers[i][len(rest):])
		f.callers[i] = rest
		if len(rest) > 0 {
			f.Runs[i].Count = int64(len(rest))
			// Swapped, not copied: two runs must not share a slice.
			f.Runs[kept], f.Runs[i] = f.Runs[i], f.Runs[kept]
			f.callers[kept], f.callers[i] = f.callers[i], f.callers[kept]
			kept++
		}
	}
	if kept == 0 {
		return false
	}
	f.Runs = f.Runs[:kept]
	return true
}

// endCallersLocked ends those in the flight with err who do not stay; nil for nobody.
func (f *flight) endCallersLocked(err error, ended []*request, stays func(*request) bool) (_ []*request, stay bool) {
	for i := range f.Runs {
		for j, r := range f.callers[i] {
			switch {
			case r == nil || !r.live():
			case stays != nil && stays(r):
				stay = true
			default:
				ended = r.failLocked(err, ended)
				f.callers[i][j] = nil
			}
		}
	}
	return ended, stay
}
