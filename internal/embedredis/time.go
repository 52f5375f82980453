// SPDX-License-Identifier: Apache-2.0

package embedredis

import "time"

// SetTime stops the clock of s at t. TIME and the TTLs follow the last call of SetTime from then on,
// and no longer the clock of this process. Setting the clock back does not lengthen any TTL.
func (s *Server) SetTime(t time.Time) { s.mini.SetTime(t) }
