// SPDX-License-Identifier: Apache-2.0

package doctor

// An explanation says what the findings of a check mean, what they do to callers, and what to do about them in general,
// which is for docs/findings.md: a Finding has the command.
type explanation struct{ means, java, golang, fix string }

// explanations has one entry for each check. RRL_TEST_DOCS=write go test -run Explanations writes them into docs/findings.md.
var explanations = map[string]explanation{
	"stuck": {
		"fewer permits are left than the rate, and nothing is in use that could come back",
		`every call for more permits than are left fails with "attempt to perform arithmetic on a nil value", forever`,
		"the next call makes the limiter whole, for Java as well",
		"`rrl heal NAME --write`",
	},
	"lost": {
		"permits are neither left nor in use: somebody took them twice, for instance when a client sent a script again after it lost the reply",
		"the limiter admits less than its rate until all grants have expired at once, which a busy limiter never sees",
		"the next call that is rejected, or the check that a process makes once an interval, brings them back",
		"`rrl heal NAME --write`",
	},
	"surplus": {
		"more permits are left and in use than the rate allows, as after a release by Redisson, a lower rate with the state kept or a wrong value, which cannot be told apart; healing takes back what is left",
		"more permits than the rate are granted in one interval",
		"the same until a process of ours has checked, which it does once an interval while it is in use",
		"`rrl heal NAME --write`",
	},
	"value": {
		"the number of permits left is missing or is not a whole number: the key was evicted, deleted or overwritten",
		"a missing value counts as the whole rate: a second burst beside the permits in use; anything else than a number fails every call",
		"the value is rebuilt from the grants in the set; nothing is granted twice",
		"`rrl heal NAME --write`",
	},
	"layouts": {
		"the set holds members that not every client can read",
		`calls fail with "data string too short", or take random bytes for permits`,
		"all layouts of Redisson are read; a member of an unknown layout counts as its last four bytes say",
		"one group of Redisson versions for all services, then `rrl heal NAME --write`",
	},
	"malformed": {
		"the hash is not that of a limiter: its rate, interval, type or keepAliveTime is not what a limiter has, or is missing",
		"calls fail or, with a rate or interval of 0 or less, admit nothing or everything",
		"every call returns ErrMalformed and changes nothing",
		"`rrl set-rate NAME --permits N --interval D --write`, or `redis-cli hset` of the field that the finding names",
	},
	"wrong-type": {
		"a key of the limiter holds another type of data than a limiter keeps there; somebody else uses the name",
		"calls fail with WRONGTYPE",
		"calls fail with WRONGTYPE",
		"give one of the two another name, with the command that the finding has; it frees no permit in use",
	},
	"shared-keys": {
		"the names of two limiters differ only by braces, and Redisson's rule gives both the same keys for their permits",
		"each takes the permits of the other",
		"each takes the permits of the other",
		"another name for one of the two",
	},
	"clock": {
		"grants are dated by a clock that differs from that of Redis; Redisson, and Go with WithClientClock, use their own",
		"callers wait longer, or are admitted too early, by the difference; with 100 ms at 20 a second 31 were admitted in a second",
		"the clock of Redis decides; a grant dated ahead blocks its permits for one interval at most after a rejection",
		"`rrl heal NAME --write`, which marks the grants that are ahead, and once more an interval later, which gives their permits back; NTP on the host whose clock is wrong",
	},
	"ttl": {
		"the keys of the limiter do not expire together, or expire while permits are in use",
		"when the hash is gone calls fail with \"RateLimiter is not initialized\"; when the permits are gone, all of the rate is granted again",
		"calls return ErrNotInitialized when the hash is gone; when the permits are gone, all of the rate is granted again",
		"a keep-alive of at least an interval, or `redis-cli pexpire` of the other keys to the TTL of the hash",
	},
	"remains": {
		"permits are left behind whose limiter is gone: the hash was deleted or evicted, or has expired before them",
		`calls fail with "RateLimiter is not initialized"; if the rate is set again, old permits in use count against it`,
		"calls return ErrNotInitialized; if the rate is set again, old permits in use count until they have expired",
		"if the limiter is used, `rrl set-rate NAME --permits N --interval D --write`, which keeps the permits in use; otherwise `redis-cli unlink`, an interval after the last grant",
	},
	"other-type": {
		"keys of the type that the limiter does not have are left, as Redisson's setRate leaves them when it changes the type; those of clients of an OVERALL limiter are found by a look at all limiters only",
		"they are ignored until the type is changed back; then old permits count",
		"they are ignored until the type is changed back; then they are made to fit the rate by the first call",
		"`redis-cli unlink` of the keys that the finding names",
	},
	"dead-clients": {
		"clients of a PER_CLIENT limiter that have gone have left their permits, which have no TTL; each start of a Redisson instance draws a new id",
		"none, but the keys take memory forever",
		"none; our own clients' keys expire by themselves",
		"`redis-cli unlink` of the keys that the finding names",
	},
	"huge-set": {
		"the set of permits is large, or most of it has expired and nobody has reclaimed it",
		"the first call after a pause reclaims everything at once, during which Redis serves nobody: 89 ms for 100,000 members",
		"a call reclaims at most 1,024 members",
		"a lower rate, or a limiter of package limit whose state does not grow",
	},
	"cool-down": {
		"somebody has called CoolDown: nobody gets a permit before its end; one of more than a year is a warning",
		"callers are rejected until then; a caller that waits sleeps until then even if the cool-down is lifted",
		"callers are rejected until then; a lift wakes those that wait within a second",
		"`rrl lift NAME --write`, if it should end now",
	},
	"min-gap": {
		"the least gap between permits is longer than the interval has room for: requests for one permit never get the rate",
		"none: Redisson ignores the gap",
		"requests for one permit get less than the rate; one for many permits at once gets them",
		"`rrl set-rate NAME --min-gap D --write` with the gap that the finding names, or a lower rate",
	},
	"slot": {
		"the keys of the limiter belong to different slots of a cluster",
		"calls fail with CROSSSLOT",
		"calls return ErrNameNotClusterSafe, and nothing is sent",
		"another name; while slots are on their way to another node, wait",
	},
	"server": {
		"the server is set up, or in a state, so that limiters can be lost or not be written",
		"see what was found",
		"see what was found",
		"as the finding says",
	},
	"hot-key": {
		"calls of a limiter's script took Redis long, during which it served nobody else; if several databases have keys, it may have been the limiter of that name in another",
		"all callers of the server wait as long; Redisson's first call after a pause reclaims everything that has expired",
		"all callers of the server wait as long; a call of ours takes about a millisecond at most",
		"`rrl doctor NAME` says whether its set is huge",
	},
	"acl": {
		"the ACL of the user that the application has does not allow what a limiter needs",
		"calls fail with NOPERM where Redisson uses the same commands; it needs others besides",
		"calls that need one of these fail with NOPERM; those that a script needs fail after a part of it was done",
		"the `acl setuser` that the finding names",
	},
	"drift": {
		"the limiter has another rate in Redis than the rule file; neither trySetRate nor a file changes the rate of a limiter that exists",
		"the rate in Redis counts",
		"the rate in Redis counts",
		"the `rrl set-rate` that the finding names, or another number in the file",
	},
	"idle": {
		"limiters are made for users or addresses, and nothing ever deletes them",
		"none, but the keys take memory forever",
		"none, but the keys take memory forever",
		"a keep-alive",
	},
	"writers": {
		"who has written what is in the set, by the layout of the members",
		"versions of different layouts cannot share a limiter",
		"all are read",
		"nothing",
	},
	"clients": {
		"the limiter has more clients than were looked at",
		"none",
		"none",
		"`--max-clients`",
	},
}

// finding returns a finding of a check.
func finding(check string, s Severity, found, fix Text) Finding {
	e := explanations[check]
	return Finding{Check: check, Severity: s, Found: found.String(), Means: e.means, Java: e.java, Go: e.golang, Fix: fix.String(), Commands: fix.commands(), FoundText: found, FixText: fix}
}

// Checks returns the ids of all checks.
func Checks() (ids []string) {
	for id := range explanations {
		ids = append(ids, id)
	}
	return ids
}
