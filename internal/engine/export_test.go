package engine

// Fired returns what the timers of the limiter run, the line's and that of the local share: for timers that fire and
// then wait for the lock. It is nil where the process has not the limiter.
func (h *Handle) Fired() (line, local func()) {
	h.shard.lock()
	defer h.shard.unlock()
	l := h.shard.findLocked(h.key)
	if l == nil {
		return nil, nil
	}
	return l.onTimer, l.onLocalTimer
}

// Key returns the limiter's.
func (h *Handle) Key() string { return h.key }

// Same returns what is the same as long as the limiter is where it was, nil where the process has not the limiter.
func (h *Handle) Same() any {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		return l
	}
	return nil
}

// Spare returns the limiter that the shard of h has evicted, and uses again.
func (h *Handle) Spare() any {
	h.shard.lock()
	defer h.shard.unlock()
	return h.shard.free
}

// The bounds that tests go by.
const (
	MaxLocals    = maxLocals
	MaxSlowTries = maxSlowTries
)
