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
// known.
func (h *Healths) Of(addr string) *Health {
	if addr == "" {
		return &h.only
	}
	if found, ok := h.of.Load(addr); ok {
		return found.(*Health)
	}
	made, _ := h.of.LoadOrStore(addr, new(Health))
	return made.(*Health)
}

// Idle reports whether every Health is idle; see [Health.Idle].
func (h *Healths) Idle() bool {
	idle := h.only.Idle()
	h.of.Range(func(_, one any) bool {
		idle = one.(*Health).Idle() && idle
		return true
	})
	return idle
}
