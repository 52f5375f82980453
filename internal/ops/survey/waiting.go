// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/wire"
)

// A Waiting is what Redis tells of the callers that wait: the tripwires in a set, and the notes in the hash, which stand for callers
// without a tripwire: in a cool-down, and of a PER_CLIENT limiter. Those of Redisson leave no trace, and a call of Redisson
// removes the tripwires of Go until the process calls again, so there may be more.
type Waiting struct {
	Callers   int64 // in all processes; a process whose number is not known counts as one
	Processes []Process
}

// A Process is what one process of this package has in a set. It is known by the two bytes with which its grants begin.
type Process struct {
	Tag     uint16
	Client  string        // the id of a PER_CLIENT client, if a note tells it
	Waiting int64         // callers that wait, or 0
	Age     time.Duration // of that number
	Permits int64         // in use
}

// staleTripwire is from which age on a tripwire tells nothing, if its limiter has a shorter interval.
const staleTripwire = 5 * time.Second

// Waiting reads who waits: for a client, those that wait for its permits, and otherwise all.
func (st *State) Waiting() (w Waiting) {
	w.Processes = st.tripwires()
	wired := len(w.Processes)
	for _, n := range st.notes() {
		i := slices.IndexFunc(w.Processes, func(p Process) bool { return p.Tag == n.Tag })
		switch {
		case i < 0:
			w.Processes = append(w.Processes, n.Process)
		case i >= wired || n.lower:
			w.Processes[i].Waiting += n.Waiting
		}
	}
	for _, p := range w.Processes {
		w.Callers += p.Waiting
	}
	return w
}

// tripwires reads the tripwires in the set. A process with waiting callers plants its own anew as its permits expire, so one
// that is older than an interval stems from callers that have gone.
func (st *State) tripwires() (list []Process) {
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
		list = append(list, p)
	}
	return list
}

// A note says who waits in one queue of a process: that of all callers, or that of those of a lower class.
type note struct {
	Process
	lower bool
}

var noted = regexp.MustCompile(`([0-9a-f]{4})(\.\d+)? (\d{1,9}) (\d{1,15}) (\d{1,15}) ([^; ]*);`)

// notes reads the notes in the hash that still count, as scripts/acquire_rest.lua has written them.
func (st *State) notes() (list []note) {
	for _, n := range noted.FindAllStringSubmatch(st.Fields["waiting"], -1) {
		tag, _ := strconv.ParseUint(n[1], 16, 16)
		waiting, _ := strconv.ParseInt(n[3], 10, 64)
		at, _ := strconv.ParseInt(n[4], 10, 64)
		counts, _ := strconv.ParseInt(n[5], 10, 64)
		client, err := url.QueryUnescape(n[6])
		age := st.Time.UnixMilli() - at
		if err == nil && age < counts && (st.ClientID == "" || client == st.ClientID) {
			list = append(list, note{Process{Tag: uint16(tag), Client: client, Waiting: waiting, Age: time.Duration(age) * time.Millisecond}, n[2] != ""})
		}
	}
	return list
}

func three(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

// Holders are those who have the permits in use, and how many each has.
type Holders struct {
	Java, CoolDown, Unknown int64
	Processes               []Process // of this package
}

// Holders returns who has the permits of the members that were read, and which processes have callers that wait.
func (st *State) Holders() (h Holders) {
	at := map[uint16]int{}
	for _, p := range st.Waiting().Processes {
		at[p.Tag] = len(h.Processes)
		h.Processes = append(h.Processes, p)
	}
	for _, m := range st.Members {
		n := int64(m.Permits)
		tag, ok := m.Process()
		switch {
		case m.Mark() == 'w' || st.expired(m):
		case ok:
			i, known := at[tag]
			if !known {
				i = len(h.Processes)
				at[tag] = i
				h.Processes = append(h.Processes, Process{Tag: tag})
			}
			h.Processes[i].Permits += n
		case m.Mark() == 'c':
			h.CoolDown += n
		case m.Mark() != 0 || !m.Known():
			h.Unknown += n
		default:
			h.Java += n
		}
	}
	return h
}

// Process returns the bytes by which this package knows the process that was granted m.
func (m Member) Process() (uint16, bool) {
	if m.Mark() != 0 || m.Layout() != wire.LayoutOurs {
		return 0, false
	}
	return uint16(m.ID[0])<<8 | uint16(m.ID[1]), true
}
