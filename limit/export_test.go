package limit

import "time"

// WithClock takes the time from now.
func WithClock(now func() time.Time) Option { return func(c *config) { c.clock = now } }

// Every is each algorithm with numbers that do not divide.
var Every = every
