// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"strconv"
	"strings"
)

// A deliberate is a difference that we intend between our behaviour and that of Redisson alone. The list is closed: a
// run fails if it meets a difference that no entry explains, and also if there is an entry that it never meets.
type deliberate struct {
	id    string
	title string
	// explains reports whether d is this difference, in this state.
	explains func(w where, d difference) bool
}

// deliberates are the differences that the matrix meets. A number is a row of docs/compatibility.md. An id "v…" is a
// behaviour of newer versions of Redisson that the tested version does not have yet; we behave like the newest.
var deliberates = []deliberate{
	{
		"4", "Permits lost by Redisson before 3.22.1, whose setRate leaves a client's PER_CLIENT state as it was: we raise what is left to rate − used.",
		func(w where, d difference) bool {
			return setRateOfOld(w) && w.direction == javaToGo && d.phase == "observe" &&
				(d.what == "answer" || isState(d) && d.step != "availablePermits") && (d.step == "availablePermits" || healthy(w, d))
		},
	},
	{
		"4", "More than the rate, left by Redisson's release: the oldest grants go, so that value + used = rate.",
		func(w where, d difference) bool {
			return w.scenario.operation == "release" && w.direction == javaToGo && d.phase == "observe" &&
				strings.HasPrefix(d.step, "tryAcquire") && strings.HasPrefix(d.what, "permits") && number(d.together) < number(d.alone) && healthy(w, d)
		},
	},
	{
		"8", "availablePermits changes nothing: it does not create the permits left, does not reclaim, does not drop their TTL.",
		func(w where, d difference) bool {
			if d.step != "availablePermits" || !goActs(w, d) {
				return false
			}
			if w.scenario.operation == "availablePermits" && strings.HasSuffix(w.scenario.name, "after the window") && d.phase == "act" {
				switch {
				case strings.HasPrefix(d.what, "value") && strings.HasSuffix(d.what, " ttl"):
					return number(d.together) > 0 && d.alone == "none"
				case strings.HasPrefix(d.what, "value"):
					return d.together == "0" && d.alone == "5"
				default:
					return strings.HasPrefix(d.what, "permits") && d.together != absent && d.alone == absent
				}
			}
			if !strings.HasPrefix(d.what, "value") || d.together != absent {
				return false
			}
			return strings.HasSuffix(d.what, " ttl") && d.alone == "none" || d.alone == d.state["hash rate"]
		},
	},
	{
		"9", "release takes the grants out of the set, newest first; Redisson leaves them to come back a second time.",
		func(w where, d difference) bool {
			return w.scenario.operation == "release" && w.direction == goToJava && d.phase != "setup" &&
				strings.HasPrefix(d.what, "permits") && number(d.together) < number(d.alone) && healthy(w, d) ||
				w.scenario.operation == "release" && w.direction == goToJava && d.phase == "act" &&
					strings.HasPrefix(d.what, "permits") && d.together == absent
		},
	},
	{
		"12", "setRate deletes this client's state of both types; Redisson that of the new type.",
		func(w where, d difference) bool {
			return w.scenario.operation == "setRate" && w.direction == goToJava && d.phase == "act" &&
				w.scenario.name == "another type" && isState(d) && d.together == absent
		},
	},
	{
		"18", "Keeping the state with a rate below what is in use leaves fewer than 0 permits, so that value + used = rate; Redisson leaves 0. After Redisson's, our next tryAcquire does that.",
		func(w where, d difference) bool {
			ours := w.direction == goToJava || d.phase == "observe" && strings.HasPrefix(d.step, "tryAcquire")
			return w.scenario.operation == "setRate(args)" && w.scenario.name == "keep state, fewer" && ours &&
				(strings.HasPrefix(d.what, "value") || d.step == "availablePermits" && d.what == "answer") && number(d.together) < 0 && d.alone == "0" && healthy(w, d)
		},
	},
	{
		"v-cool-down", "3.13.4 throws from every tryAcquire and acquire in a cool-down, until an interval before its end; false, or a wait, since.",
		func(w where, d difference) bool {
			return !w.version.since("3.15.5") && w.scenario.operation == coolDown && strings.HasPrefix(d.step, "tryAcquire") && d.what == "answer" &&
				strings.Contains(d.together, "bad argument #2 to 'unpack' (string expected, got nil)") && d.alone == "false"
		},
	},
	{
		"v-end", "A cool-down of ours writes its end into the hash, which Redisson ignores.",
		func(w where, d difference) bool {
			return w.scenario.operation == coolDown && d.what == "hash coolDown" && d.alone == absent
		},
	},
	{
		"v-kept", "Keeping the state under another rate writes into the hash until when its grants may be in use, which Redisson ignores.",
		func(w where, d difference) bool {
			return strings.HasPrefix(w.scenario.name, "keep state") && d.what == "hash keptUntil" && d.alone == absent
		},
	},
	{
		"v-delete", "3.13.4 answers false to a delete that removed more than one key.",
		func(w where, d difference) bool {
			return !w.version.since("3.15.5") && d.step == "delete" && goActs(w, d) && d.what == "answer" &&
				d.together == "true" && d.alone == "false"
		},
	},
	{
		"v-excess", "3.13.4 answers false to more permits than the rate, once the limiter is in use; an error since.",
		func(w where, d difference) bool {
			return !w.version.since("3.14.0") && strings.HasPrefix(d.step, "tryAcquire") && goActs(w, d) && d.what == "answer" &&
				d.together == exceedsRate && d.alone == "false"
		},
	},
	{
		"v-field", "Redisson before 3.38.0 writes no keepAliveTime; it ignores ours, which is 0.",
		func(w where, d difference) bool {
			return !w.version.since("3.38.0") && d.what == "hash keepAliveTime" && d.together == "0" && d.alone == absent
		},
	},
	{
		"v-ttl", "Redisson before 3.17.3 does not copy the limiter's TTL to its permits at an acquire.",
		func(w where, d difference) bool {
			return !w.version.since("3.17.3") && isState(d) && strings.HasSuffix(d.what, " ttl") &&
				strings.HasPrefix(d.step, "tryAcquire") && number(d.together) > 0 && d.alone == "none"
		},
	},
}

// ownDifference reports whether the difference appears wherever the operation is used, and is not an effect of an
// earlier operation.
func ownDifference(id string) bool {
	return id == "8" || strings.HasPrefix(id, "v-") && id != "v-cool-down"
}

// explain returns the id of the deliberate difference that d is, or "" if it is none.
func explain(w where, d difference) string {
	for _, l := range deliberates {
		if l.explains(w, d) {
			return l.id
		}
	}
	return ""
}

// setRateOfOld reports whether the step is a setRate of a client's own permits by a Redisson older than 3.22.1.
func setRateOfOld(w where) bool {
	return w.scenario.operation == "setRate" && w.typ == "PER_CLIENT" && !w.version.since("3.22.1")
}

// goActs reports whether the step was ours on the limiter that the two sides share.
func goActs(w where, d difference) bool {
	if w.lacks {
		return d.phase != "observe"
	}
	return (d.phase == "act") == (w.direction == goToJava)
}

// isState reports whether the difference is in the permits left or in use, and not in the hash.
func isState(d difference) bool {
	return strings.HasPrefix(d.what, "value") || strings.HasPrefix(d.what, "permits")
}

// healthy reports whether the permits left and in use, under the key that differs, add up to the rate. After the rate
// is lowered below what is in use, fewer than 0 permits are left, which every Redisson treats as a wait.
func healthy(w where, d difference) bool {
	of := ""
	if w.typ == "PER_CLIENT" {
		of = " of client"
	}
	if strings.Contains(d.what, " of newest") {
		of = " of newest"
	}
	rate, value, used := number(d.state["hash rate"]), d.state["value"+of], number(d.state["permits"+of+" used"])
	if value == "" {
		return used == 0
	}
	return number(value)+used == rate
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
