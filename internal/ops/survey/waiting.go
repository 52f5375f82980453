// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/wire"
)

// A Waiting is what the tripwires in a set tell of the callers that wait. Those of Redisson leave none, and a call of Redisson
// removes those of Go until the process calls again, so there may be more.
type Waiting struct {
	Callers   int64 // in all processes; a process whose number is not known counts as one
	Processes []Process
}

// A Process is what one process of this package has in a set. It is known by the two bytes with which its grants begin.
type Process struct {
	Tag     uint16
	Waiting int64         // callers that wait, or 0
	Age     time.Duration // of that number
	Permits int64         // in use
}

// staleTripwire is from which age on a tripwire tells nothing, if its limiter has a shorter interval.
const staleTripwire = 5 * time.Second

// Waiting reads who waits from the tripwires in the set. A process with waiting callers plants its own anew as its permits expire, so one
// that is older than an interval stems from callers that have gone.
func (st *State) Waiting() (w Waiting) {
	for _, m := range st.Members {
		if m.Mark() != 'w' {
			continue
		}
		at, number := m.ID[len(m.ID)-3:], []byte(nil)
		if len(m.ID) == 16 { // the bytes after the repeated permits: tag, 0, the instant, the number
			at, number = m.ID[10:13], m.ID[13:16]
		}
		age := time.Duration((st.Time.UnixMilli()-int64(three(at)))&(1<<24-1)) * time.Millisecond
		if age > max(staleTripwire, st.Rate.Interval+time.Second) {
			continue
		}
		p := Process{Tag: uint16(m.ID[len(m.ID)-6])<<8 | uint16(m.ID[len(m.ID)-5]), Age: age, Waiting: 1}
		if len(number) > 0 {
			p.Tag, p.Waiting = uint16(m.ID[7])<<8|uint16(m.ID[8]), max(1, int64(three(number)))
		}
		w.Callers += p.Waiting
		w.Processes = append(w.Processes, p)
	}
	return w
}

func three(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

// Grants returns the permits in use that Java was granted, those of each process of this package, and those of which that is not
// known. They are those of the members that were read.
func (st *State) Grants() (java, unknown int64, processes []Process) {
	at := map[uint16]int{}
	for _, p := range st.Waiting().Processes {
		at[p.Tag] = len(processes)
		processes = append(processes, p)
	}
	for _, m := range st.Members {
		n := int64(m.Permits)
		tag, ok := m.Process()
		switch {
		case m.Mark() == 'w' || st.expired(m):
		case ok:
			i, known := at[tag]
			if !known {
				i = len(processes)
				at[tag] = i
				processes = append(processes, Process{Tag: tag})
			}
			processes[i].Permits += n
		case m.Mark() != 0 || !m.Known():
			unknown += n
		default:
			java += n
		}
	}
	return java, unknown, processes
}

// Process returns the bytes by which this package knows the process that was granted m.
func (m Member) Process() (uint16, bool) {
	if m.Mark() != 0 || m.Layout() != wire.LayoutOurs {
		return 0, false
	}
	return uint16(m.ID[0])<<8 | uint16(m.ID[1]), true
}
