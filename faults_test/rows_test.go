// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// rows are the faults, in the order of the table.
var rows = []row{
	{
		"sentinel, kill", "Sentinel: the master is killed (kill -9), and its replica lacks every grant of the window",
		"at most one rate more; callers that wait get no error; the first grant within 2.5 s after the replica takes writes", sentinelKill,
	},
	{
		"sentinel, SIGSTOP", "Sentinel: the master freezes (SIGSTOP), is replaced, and goes on",
		"the same; the old master grants nothing beyond that", sentinelStop,
	},
	{
		"sentinel, manual", "Sentinel: an operator orders a failover (SENTINEL FAILOVER)",
		"the same", sentinelManual,
	},
	{
		"min-replicas", "the master has lost its replica and rejects writes (`min-replicas-to-write`, NOREPLICAS)",
		"nothing granted; drift 0; the first grant within 2.5 s after the master takes writes", minReplicas,
	},
	{
		"cluster, reshard", "Cluster: the slot of a limiter moves from master to master under load",
		"no caller gets an error, unless its keys lie on two nodes for longer than the attempts of a call last, about 0.2 s; callers that wait get none even then; drift 0", reshard,
	},
	{
		"cluster, failover", "Cluster: an operator orders a failover (CLUSTER FAILOVER)",
		"callers that wait get no error; drift 0; the first grant within 2.5 s after the replica takes writes", clusterFailover,
	},
	{
		"cluster, master lost", "Cluster: a master is killed for good, and its replica lacks every grant of the window",
		"at most one rate more; callers that wait get no error; the first grant within 2.5 s after the replica takes writes", clusterLoses,
	},
	{
		"cluster, master frozen", "Cluster: a master freezes (SIGSTOP), is replaced, and goes on",
		"the same; the old master grants nothing beyond that", clusterFreezes,
	},
	{
		"ring, shard lost", "Ring: a shard is killed, taken out by the ring, and comes back",
		"its limiters are unavailable, never without a rate; no second burst; the others do not notice", ringLosesAShard,
	},
	{
		"clock, +1 h", "the clock of Redis is set ahead by an hour",
		"at most one rate more across the step, and at most the rate in any window after it", stepped(time.Hour, true),
	},
	{
		"clock, -1 h", "the clock of Redis is set back by an hour",
		"at most the rate in any window; nobody waits longer than an interval for it", stepped(-time.Hour, false),
	},
	{
		"clock, -5 s", "the clock of Redis is set back by 5 s",
		"the same", stepped(-5*time.Second, false),
	},
	{
		"future members", "a peer whose clock is fast leaves grants dated ahead",
		"nobody waits longer than an interval for them", futureMembers,
	},
	{
		"AOF, always", "Redis is killed (kill -9) and restarted, `appendfsync always`",
		"no grant is lost or counted twice; callers that wait get no error; the first grant within 2.5 s", appendOnly("always"),
	},
	{
		"AOF, everysec", "the same with `appendfsync everysec`",
		"only what Redis had not yet written is lost; no grant is counted twice; the first grant within 2.5 s", appendOnly("everysec"),
	},
	{
		"restart, empty", "Redis is killed and comes back empty, under load",
		"one rate each time at most, for callers that set the rate again at ErrNotInitialized; no other error but ErrUnavailable",
		emptied(5, func(s *redistest.Server, _ *redis.Client) { s.Restart() }),
	},
	{
		"FLUSHALL", "FLUSHALL under load",
		"the same", emptied(10, func(_ *redistest.Server, rdb *redis.Client) { rdb.FlushAll(context.Background()) }),
	},
	{
		"eviction", "Redis evicts keys of limiters (`allkeys-random`)",
		"without its value: nothing beyond the rate; without its set: at most one rate more; without its hash: ErrNotInitialized; all are sound afterwards", evicted,
	},
	{
		"OOM", "Redis is out of memory and rejects writes (`noeviction`)",
		"nothing granted without Redis but by policy, which engages within 2 s; one outage; drift 0; the first grant within 2.5 s after it", outOfMemory,
	},
	{
		"SIGSTOP", "Redis freezes for 12 s",
		"nothing granted; nothing told that is not in Redis; callers that wait get no error; the first grant within 2.5 s after it", paused,
	},
	{
		"policies", "Redis is killed under each outage policy",
		"closed grants nothing, open everything, the local quotas no more than the rate together; less than twice the rate across the return", policies,
	},
	{
		"flapping", "the network breaks and comes back every 300 ms",
		"at most the rate in any window; drift 0; callers that wait get no error", flapping,
	},
	{
		"slow Redis", "every reply takes 2 s",
		"counts as an outage: policies engage within 2 s; one outage; nothing told that is not in Redis", slow,
	},
	{
		"lost replies", "calls are executed and their replies lost, 10,000 of them",
		"drift 0; no caller gets an error", lostReplies,
	},
	{
		"SCRIPT FLUSH", "the script cache is emptied every 10 ms",
		"no caller gets an error; drift 0", scriptFlush,
	},
	{
		"cancel", "callers give up, 500 at once, while they wait or their call is on its way",
		"no permit is lost, no goroutine left", cancelled,
	},
	{
		"processes killed", "three of four processes are killed (kill -9) with permits in use and callers in line",
		"the others use their permits within three intervals; at most the rate in any window", processKilled,
	},
	{
		"chaos", "200 goroutines call every public method while connections break, replies are lost or held, scripts are flushed and values evicted, under the race detector",
		"no race, panic or hang; only errors with a name; at most the rate in any window; no goroutine left", chaos,
	},
	{
		"hostile states", "any state in Redis that a peer, an operator or a bug can leave, and any operation on it",
		"a sound answer or an error with a name, in time; no outage of others; an interval later at most the rate in any window; Delete and TrySetRate make it sound", hostile,
	},
	{
		"fairness", "four processes with equal demand",
		"each gets at least half of an equal part", fourProcesses,
	},
	{
		"large requests", "one of four processes asks for half of the rate at a time",
		"each gets at least half of an equal part; the large request waits three intervals at most", largeRequests,
	},
}
