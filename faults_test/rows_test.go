// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// rows are the faults, in the order of the table.
var rows = []row{
	{
		"sentinel, kill", "Sentinel: the master is killed (kill -9), and its replica lacks every grant of the window",
		"at most one rate more; callers that wait get no error; the first grant within 2.5 s after the replica takes writes", sentinelKill,
	},
	{
		"sentinel, SIGSTOP", "Sentinel: the master freezes (SIGSTOP), is replaced, and resumes",
		"the same; the old master grants nothing more", sentinelStop,
	},
	{
		"sentinel, manual", "Sentinel: an operator orders a failover (SENTINEL FAILOVER)",
		"the same", sentinelManual,
	},
	{
		"sentinel, many, kill", "Sentinel: the master is killed while calls of many limiters travel together, and its replica lacks every grant",
		"at most one rate more of each; each is served again within 2.5 s after the replica takes writes", failoverTogether(func(w *watched) { w.master.Kill() }),
	},
	{
		"sentinel, many, manual", "Sentinel: an operator orders a failover while calls of many limiters travel together",
		"the same", failoverTogether(func(w *watched) { do(w.f, admin(w.f, w.sentinels[0]), "SENTINEL", "FAILOVER", "limits") }),
	},
	{
		"min-replicas", "the master has lost its replica and rejects writes (`min-replicas-to-write`, NOREPLICAS)",
		"nothing granted; drift 0; the first grant within 2.5 s after the master takes writes", minReplicas,
	},
	{
		"cluster, reshard", "Cluster: the slot of a limiter moves from master to master under load",
		"no caller gets an error, unless its keys are on two nodes for longer than a call keeps trying, about 0.2 s; callers that wait get no error even then; drift 0", reshard,
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
		"cluster, master frozen", "Cluster: a master freezes (SIGSTOP), is replaced, and resumes",
		"the same; the old master grants nothing more", clusterFreezes,
	},
	{
		"ring, shard lost", "Ring: a shard is killed, taken out by the ring, and comes back",
		"its limiters are unavailable, but keep their rates; no second burst; other limiters are not affected", ringLosesAShard,
	},
	{
		"clock, +1 h", "the clock of Redis is set ahead by an hour",
		"at most one rate more across the change, and at most the rate in any window after it", stepped(time.Hour, true),
	},
	{
		"clock, -1 h", "the clock of Redis is set back by an hour",
		"at most the rate in any window; no call waits longer than an interval because of it", stepped(-time.Hour, false),
	},
	{
		"clock, -5 s", "the clock of Redis is set back by 5 s",
		"the same", stepped(-5*time.Second, false),
	},
	{
		"future members", "a peer with a fast clock leaves grants dated in the future",
		"no call waits longer than an interval because of them", futureMembers,
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
		"at most one rate each time, if callers set the rate again on ErrNotInitialized; no other error except ErrUnavailable",
		emptied(5, func(s *redistest.Server, _ *redis.Client) { s.Restart() }),
	},
	{
		"FLUSHALL", "FLUSHALL under load",
		"the same", emptied(10, func(_ *redistest.Server, rdb *redis.Client) { rdb.FlushAll(context.Background()) }),
	},
	{
		"eviction", "Redis evicts keys of limiters (`allkeys-random`)",
		"if the value is lost: nothing beyond the rate; the set: at most one rate more; the hash: ErrNotInitialized; all limiters are sound afterwards", evicted,
	},
	{
		"OOM", "Redis is out of memory and rejects writes (`noeviction`)",
		"grants without Redis only by policy, which engages within 2 s; one outage; drift 0; the first grant within 2.5 s after it", outOfMemory,
	},
	{
		"SIGSTOP", "Redis freezes for 12 s",
		"nothing granted; no reported grant is missing in Redis; callers that wait get no error; the first grant within 2.5 s after it", paused,
	},
	{
		"policies", "Redis is killed under each outage policy",
		"FailClosed grants nothing, FailOpen everything, the local quotas together no more than the rate; less than twice the rate across the return of Redis", policies,
	},
	{
		"flapping", "the network breaks and recovers every 300 ms",
		"at most the rate in any window; drift 0; callers that wait get no error", flapping,
	},
	{
		"slow Redis", "every reply takes 2 s",
		"counts as an outage: policies engage within 2 s; one outage; no reported grant is missing in Redis", slow,
	},
	{
		"lost replies", "10,000 calls are executed but their replies are lost",
		"drift 0; no caller gets an error", lostReplies,
	},
	{
		"SCRIPT FLUSH", "the script cache is emptied every 10 ms",
		"no caller gets an error; drift 0", scriptFlush,
	},
	{
		"settlements", "100,000 grants are settled to less and more while connections are killed, scripts are flushed and large sets are healed",
		"drift 0", settled(false),
	},
	{
		"settlements, cluster", "the same on a cluster of three masters",
		"the same", settled(true),
	},
	{
		"cancel", "callers give up, 500 at a time, while they wait or their call is in flight",
		"no permit is lost, no goroutine left", cancelled,
	},
	{
		"processes killed", "three of four processes are killed (kill -9) with permits in use and callers in the queue",
		"the others use their permits within three intervals; at most the rate in any window", processKilled,
	},
	{
		"chaos", "200 goroutines call every public method while connections break, replies are lost or held, scripts are flushed and values evicted, under the race detector",
		"no race, panic or hang; only named errors; at most the rate in any window; no goroutine left", everythingBreaks,
	},
	{
		"hostile states", "every operation on every state that a peer, an operator or a bug can leave in Redis",
		"a sound result or a named error, in time; no outage for other limiters; an interval later at most the rate in any window; Delete and TrySetRate repair it", hostile,
	},
	{
		"fairness", "four processes with equal demand",
		"each gets at least half of an equal share", fourProcesses,
	},
	{
		"large requests", "one of four processes asks for half of the rate at a time",
		"each gets at least half of an equal share; a large request waits at most three intervals", largeRequests,
	},
}
