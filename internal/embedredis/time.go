package embedredis

import "time"

// SetTime stops the clock of the server at t, which TIME and the TTLs then follow: what is set once is
// virtual from then on. When it is put back, no time has passed for the keys.
func (s *Server) SetTime(t time.Time) { s.mini.SetTime(t) }
