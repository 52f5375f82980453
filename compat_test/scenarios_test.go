// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"slices"
	"time"
)

// A step is one call of a scenario, or a pause.
type step struct {
	operation string
	args      []any
	pause     time.Duration
}

func do(operation string, args ...any) step { return step{operation: operation, args: args} }
func sleep(d time.Duration) step            { return step{pause: d} }

// A scenario is one way to use an operation. In one direction Java acts and Go observes, in the other Go acts and
// Java observes. The observing side also makes the state on which the other one acts.
type scenario struct {
	operation string // the row of the matrix
	name      string
	since     string // the first version of Redisson, "" for all of them
	ours      bool   // Redisson has no such operation: it only observes
	setup     []step
	act       []step
}

// typeOf stands in a scenario for the type under test, and otherType for the other one.
const (
	typeOf    = "TYPE"
	otherType = "OTHER TYPE"
)

// short is an interval that scenarios wait for, and long is one that never ends during a test.
const (
	short = 400 * time.Millisecond
	long  = time.Hour
)

// inAnHour is the same instant for both limiters of a cell.
var inAnHour = time.Now().Add(time.Hour).UnixMilli()

// coolDown is the operation of ours that blocks a limiter for a time. To Redisson it is to look like one whose permits are all in
// use: in its place Redisson acquires what is left, the second argument.
const coolDown = "CoolDown (ours)"

func rate(permits int, interval time.Duration) step {
	return do("trySetRate", typeOf, permits, interval)
}

func take(permits int) step { return do("tryAcquire", permits) }

// fullView is what the observer requests at the end, whatever happened before: 5 is more than the limiters of most
// scenarios have left, and 1000 is more than any of them has in all.
var fullView = []step{
	do("getConfig"), do("isExists"), do("remainTimeToLive"), do("getExpireTime"), do("availablePermits"),
	take(1), take(2), take(5), take(1), take(1000), do("availablePermits"), do("remainTimeToLive"), do("getName"),
	do("trySetRate", typeOf, 4, long), do("delete"), do("isExists"), take(1),
}

// What scenarios begin with.
var (
	five     = []step{rate(5, long), take(2)}
	spent    = []step{rate(5, short), take(5)}
	expiring = []step{rate(5, long), take(2), do("expire", 10*time.Minute), take(1)}
)

// scenarios are the rows of the matrix.
var scenarios = slices.Concat([]scenario{
	{operation: "trySetRate", name: "new", act: []step{rate(5, long)}},
	{operation: "trySetRate", name: "there is one", setup: five, act: []step{do("trySetRate", otherType, 9, short)}},
	{operation: "trySetRate", name: "keep-alive", since: "3.38.0", act: []step{do("trySetRate", typeOf, 5, long, 2*long), take(2)}},
	{operation: "trySetRate", name: "keep-alive too short", since: "3.38.0", act: []step{do("trySetRate", typeOf, 5, long, short)}},

	{operation: "setRate", name: "new", act: []step{do("setRate", typeOf, 5, long)}},
	{operation: "setRate", name: "more", setup: five, act: []step{do("setRate", typeOf, 9, long)}},
	{operation: "setRate", name: "fewer", setup: five, act: []step{do("setRate", typeOf, 1, 2*long)}},
	{operation: "setRate", name: "another type", setup: five, act: []step{do("setRate", otherType, 6, long)}},
	{operation: "setRate", name: "of an expiring limiter", setup: expiring, act: []step{do("setRate", typeOf, 9, long)}},
	{operation: "setRate", name: "keep-alive", since: "3.38.0", setup: five, act: []step{do("setRate", typeOf, 9, long, 2*long), take(1)}},

	{operation: "setRate(args)", name: "keep state, more", since: "4.4.0", setup: five, act: []step{do("setRateArgs", typeOf, 9, long, "-", true)}},
	{operation: "setRate(args)", name: "keep state, fewer", since: "4.4.0", setup: []step{rate(5, long), take(1), take(3)}, act: []step{do("setRateArgs", typeOf, 2, long, "-", true)}},
	{operation: "setRate(args)", name: "keep state, shorter interval", since: "4.4.0", setup: append(five[:2:2], sleep(short), take(1)), act: []step{do("setRateArgs", typeOf, 9, short, "-", true)}},
	{operation: "setRate(args)", name: "keep state, another type", since: "4.4.0", setup: five, act: []step{do("setRateArgs", otherType, 9, long, "-", true)}},
	{operation: "setRate(args)", name: "keep state, keep-alive", since: "4.4.0", setup: five, act: []step{do("setRateArgs", typeOf, 9, long, 2*long, true)}},
	{operation: "setRate(args)", name: "forget state", since: "4.4.0", setup: five, act: []step{do("setRateArgs", typeOf, 9, long, "-", false)}},
	{operation: "updateRate", name: "absent", since: "4.4.0", act: []step{do("updateRate", typeOf, 9, long, "-", true)}},
	{operation: "updateRate", name: "keep state", since: "4.4.0", setup: five, act: []step{do("updateRate", typeOf, 9, long, "-", true)}},
	{operation: "updateRate", name: "forget state", since: "4.4.0", setup: five, act: []step{do("updateRate", typeOf, 3, long, 2*long, false)}},
	{operation: "updateRate", name: "another type", since: "4.4.0", setup: five, act: []step{do("updateRate", otherType, 3, long, "-", false)}},

	{operation: "getConfig", name: "absent", act: []step{do("getConfig")}},
	{operation: "getConfig", name: "present", setup: five, act: []step{do("getConfig")}},

	{operation: "tryAcquire", name: "not initialized", act: []step{take(1)}},
	{operation: "tryAcquire", name: "first", setup: []step{rate(5, long)}, act: []step{take(2)}},
	{operation: "tryAcquire", name: "all, and then more", setup: five, act: []step{take(3), take(1)}},
	{operation: "tryAcquire", name: "more than the rate", setup: five, act: []step{take(6)}},
	{operation: "tryAcquire", name: "more than is left", setup: five, act: []step{take(4), take(3)}},
	{operation: "tryAcquire", name: "after the window", setup: spent, act: []step{take(1), sleep(short + 100*time.Millisecond), take(4)}},
	{operation: "tryAcquire", name: "of an expiring limiter", setup: expiring, act: []step{take(1)}},
	{operation: "tryAcquire", name: "keep-alive", since: "3.38.0", setup: []step{rate(5, long), do("setRate", typeOf, 5, long, 2*long)}, act: []step{take(2)}},

	{operation: "tryAcquire(timeout)", name: "0", setup: spent, act: []step{do("tryAcquire", 1, time.Duration(0))}},
	{operation: "tryAcquire(timeout)", name: "too short", setup: spent, act: []step{do("tryAcquire", 1, 100*time.Millisecond)}},
	{operation: "tryAcquire(timeout)", name: "long enough", setup: spent, act: []step{do("tryAcquire", 4, 2*time.Second)}},
	{operation: "tryAcquire(timeout)", name: "Duration", since: "3.52.0", setup: spent, act: []step{do("tryAcquireDuration", 4, 2*time.Second)}},

	{operation: "acquire", name: "at once", setup: five, act: []step{do("acquire", 3)}},
	{operation: "acquire", name: "waits", setup: spent, act: []step{do("acquire", 3)}},
	// 3.13.4 waits forever.
	{operation: "acquire", name: "more than the rate", since: "3.14.0", setup: five, act: []step{do("acquire", 6)}},
	{operation: "acquire", name: "not initialized", act: []step{do("acquire", 1)}},

	{operation: "availablePermits", name: "not initialized", act: []step{do("availablePermits")}},
	{operation: "availablePermits", name: "unused", setup: []step{rate(5, long)}, act: []step{do("availablePermits")}},
	{operation: "availablePermits", name: "in use", setup: five, act: []step{do("availablePermits")}},
	{operation: "availablePermits", name: "after the window", setup: spent, act: []step{sleep(short + 100*time.Millisecond), do("availablePermits")}},
	{operation: "availablePermits", name: "of an expiring limiter, after the window", setup: append(spent[:2:2], do("expire", long)), act: []step{sleep(short + 100*time.Millisecond), do("availablePermits")}},
	{operation: "availablePermits", name: "of an expiring limiter", setup: expiring, act: []step{do("availablePermits")}},

	{operation: "release", name: "all", since: "3.52.0", setup: five, act: []step{do("release", 2)}},
	{operation: "release", name: "part", since: "3.52.0", setup: []step{rate(5, long), take(1), take(3)}, act: []step{do("release", 2)}},
	{operation: "release", name: "more than are in use", since: "3.52.0", setup: five, act: []step{do("release", 4)}},

	{operation: "expire", name: "absent", act: []step{do("expire", long)}},
	{operation: "expire", name: "unused", setup: []step{rate(5, long)}, act: []step{do("expire", long)}},
	{operation: "expire", name: "in use", setup: five, act: []step{do("expire", long)}},
	{operation: "expire", name: "in time", setup: five, act: []step{do("expire", 200*time.Millisecond), sleep(300 * time.Millisecond)}},
	{operation: "expireAt", name: "in use", setup: five, act: []step{do("expireAt", inAnHour)}},
	{operation: "expireAt", name: "past", setup: five, act: []step{do("expireAt", int64(1))}},

	{operation: "clearExpire", name: "none", setup: five, act: []step{do("clearExpire")}},
	{operation: "clearExpire", name: "absent", act: []step{do("clearExpire")}},
	{operation: "clearExpire", name: "set", setup: expiring, act: []step{do("clearExpire")}},
	{operation: "remainTimeToLive", name: "absent", act: []step{do("remainTimeToLive")}},
	{operation: "remainTimeToLive", name: "set", setup: expiring, act: []step{do("remainTimeToLive")}},
	{operation: "getExpireTime", name: "absent", since: "3.20.1", act: []step{do("getExpireTime")}},
	{operation: "getExpireTime", name: "none", since: "3.20.1", setup: five, act: []step{do("getExpireTime")}},
	{operation: "getExpireTime", name: "set", since: "3.20.1", setup: expiring, act: []step{do("getExpireTime")}},

	{operation: "isExists", name: "absent", act: []step{do("isExists")}},
	{operation: "isExists", name: "present", setup: five, act: []step{do("isExists")}},
	{operation: "delete", name: "absent", act: []step{do("delete")}},
	{operation: "delete", name: "unused", setup: []step{rate(5, long)}, act: []step{do("delete")}},
	{operation: "delete", name: "in use", setup: five, act: []step{do("delete")}},
	{operation: "getName", name: "", act: []step{do("getName")}},

	{operation: coolDown, name: "of an unused limiter", ours: true, setup: []step{rate(5, long)}, act: []step{do(coolDown, 2*long, 5)}},
	{operation: coolDown, name: "in use", ours: true, setup: five, act: []step{do(coolDown, 2*long, 3)}},
}, conditional())

// conditional returns the scenarios of expire and expireAt with each condition.
func conditional() (list []scenario) {
	for _, condition := range []string{"IfSet", "IfNotSet", "IfGreater", "IfLess"} {
		for _, state := range []struct {
			name  string
			setup []step
		}{{"no TTL", five}, {"TTL", expiring}, {"absent", nil}} {
			list = append(list,
				scenario{operation: "expire" + condition, name: state.name + ", longer", since: "3.20.1", setup: state.setup, act: []step{do("expire"+condition, long)}},
				scenario{operation: "expire" + condition, name: state.name + ", shorter", since: "3.20.1", setup: state.setup, act: []step{do("expire"+condition, time.Minute)}},
				scenario{operation: "expire" + condition, name: state.name + ", instant", since: "3.20.1", setup: state.setup, act: []step{do("expireAt"+condition, inAnHour)}})
		}
	}
	return list
}
