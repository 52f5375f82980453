//go:build race

package limit

// UnderRace: the race detector makes virtual time ten times as dear. What only takes long is done in full
// without it, which is how the valkey lane runs.
const UnderRace = true
