// SPDX-License-Identifier: Apache-2.0

//go:build race

package limit

// UnderRace: the race detector makes virtual time ten times as dear. What only takes long is done in full
// without it, which is how the lanes run that are not about races.
const UnderRace = true
