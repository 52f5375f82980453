//go:build race

package engine_test

// underRace reports that the race detector is on, which makes a million operations take minutes.
const underRace = true
