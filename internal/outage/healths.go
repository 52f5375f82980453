// SPDX-License-Identifier: Apache-2.0

package outage

import "sync"

// Healths are those of the servers of one Redis: a single one, the masters of a cluster, or the shards of a ring.
// The zero value is ready for use. Methods are safe for concurrent use.
type Healths struct {
	only Health   // of the only server, or of those that are not known yet
	of   sync.Map // *Health by address
}

// Of returns the Health of the server at an address. The empty address stands for the only server, or for one that is not
// known. If one server has let this user in, a new one counts as if it had, too: it may be a replica that takes over.
func (h *Healths) Of(addr string) *Health {
	if addr == "" {
		return &h.only
	}
	if found, ok := h.of.Load(addr); ok {
		return found.(*Health)
	}
	known := false
	h.each(func(one *Health) { known = one.isKnown() || known })
	made, _ := h.of.LoadOrStore(addr, &Health{known: known})
	return made.(*Health)
}

// Replied records that the servers have let this user in, as a reply to another call shows.
func (h *Healths) Replied() { h.each((*Health).replied) }

// Idle reports whether every Health is idle; see [Health.Idle].
func (h *Healths) Idle() bool {
	idle := true
	h.each(func(one *Health) { idle = one.Idle() && idle })
	return idle
}

func (h *Healths) each(f func(*Health)) {
	f(&h.only)
	h.of.Range(func(_, one any) bool {
		f(one.(*Health))
		return true
	})
}
