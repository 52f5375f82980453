//go:build !race

package limit

const UnderRace = false
