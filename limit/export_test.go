// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// WithClock makes the limiter use the clock now.
func WithClock(now func() time.Time) Option { return func(c *config) { c.clock = now } }

// EveryAlgorithm is each algorithm, with parameters that do not divide.
var EveryAlgorithm = every
