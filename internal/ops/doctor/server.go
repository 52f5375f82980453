// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
)

// Servers looks at every server that holds limiters.
func (d *Doctor) Servers(ctx context.Context) (*Report, error) {
	r := &Report{Findings: []Finding{}, Skipped: []Skip{}}
	nodes, err := d.nodes(ctx, r)
	if err != nil {
		return nil, err
	}
	if errors.Is(d.upErr, survey.ErrShardsDown) {
		count := strings.TrimPrefix(oneLine(d.upErr), survey.ErrShardsDown.Error()+": ")
		down, all, _ := strings.Cut(count, " of ")
		f := finding("server", Critical, say("shards of the ring are down: %s of %s", down, all), Text{})
		f.Java = "Redisson has no ring; those limiters are away"
		f.Go = "calls of their limiters return ErrUnavailable, or follow the outage policy"
		r.Findings = append(r.Findings, f)
	}
	for _, node := range nodes {
		if err := d.server(ctx, node, r); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if len(nodes) == 1 {
				return nil, err
			}
			d.miss(r, Skip{Check: "server", Node: node.Addr}, err)
		}
	}
	return r, nil
}

// facts are what INFO says of a server, by field.
type facts map[string]string

func (f facts) number(field string) int64 {
	n, _ := strconv.ParseInt(f[field], 10, 64)
	return n
}

func factsOf(info string) facts {
	f := facts{}
	for line := range strings.Lines(info) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[field] = value
		}
	}
	return f
}

func (d *Doctor) server(ctx context.Context, node survey.Node, r *Report) error {
	info, err := node.Client.Info(ctx).Result()
	if err != nil {
		return err
	}
	f := factsOf(info)
	skip := func(err error) {
		r.skip(Skip{Check: "server", Node: node.Addr}, true, err)
	}
	// What only CONFIG tells: managed services reject it, and much of it does not matter then.
	save, err := node.Client.ConfigGet(ctx, "save").Result()
	if err != nil {
		skip(fmt.Errorf("CONFIG GET: %w", err))
	} else {
		f["save"] = save["save"]
		if f["save"] == "" {
			f["save"] = "none"
		}
	}
	if f["min_slaves_good_slaves"] != "" {
		if least, err := node.Client.ConfigGet(ctx, "min-replicas-to-write").Result(); err == nil {
			f["min-replicas-to-write"] = least["min-replicas-to-write"]
		}
	}
	nodes := ""
	if f["cluster_enabled"] == "1" {
		state, err := node.Client.ClusterInfo(ctx).Result()
		if err != nil {
			skip(err)
		}
		f["cluster_state"] = factsOf(state)["cluster_state"]
		if nodes, err = node.Client.ClusterNodes(ctx).Result(); err != nil {
			skip(err)
		}
	}
	if stats, err := node.Client.Info(ctx, "commandstats").Result(); err == nil {
		for name, text := range factsOf(stats) {
			f[name] = text
		}
	}
	d.hot(ctx, node, f, r)
	f["addr"] = node.Addr
	to := d.target().At(node.Addr)
	for _, x := range append(f.examine(to), migrating(nodes, to, node.Addr)...) {
		x.Node = node.Addr
		r.Findings = append(r.Findings, x)
	}
	return nil
}

// examine runs the checks of a server.
func (f facts) examine(to Target) (list []Finding) {
	version := cmp.Or(f["valkey_version"], f["redis_version"])
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	most, used, policy := f.number("maxmemory"), f.number("used_memory"), f["maxmemory_policy"]
	evicts, lapses := most > 0 && strings.HasPrefix(policy, "allkeys"), most > 0 && strings.HasPrefix(policy, "volatile")
	percent, log := 100*used/max(1, most), word("look at the server's log and its disk")
	failed := func(field string) bool { return f[field] != "" && f[field] != "ok" }
	good, least := f["min_slaves_good_slaves"], max(1, f.number("min-replicas-to-write"))
	for _, x := range []struct {
		is             bool
		s              Severity
		found          Text
		means, callers string
		fix            Text
		ours           string // what it does to callers of Go, if that is not the same
	}{
		{err == nil && major < 5, Critical, say("version %s", version), "the scripts need Redis 5 or Valkey", "scripts fail with errors of Lua or of unknown commands",
			word("update the server"), ""},
		{f["role"] == "slave", Critical, say("a replica of %s:%s", f["master_host"], f["master_port"]), "clients are connected to a replica, which cannot be written",
			"every acquire fails with READONLY", word("connect to the master, or through a sentinel or a cluster client"), ""},
		{f["loading"] == "1", Critical, word("the server loads its data"), "it was restarted a moment ago", "calls fail with LOADING until it is done", word("wait"), ""},
		{failed("cluster_state"), Critical, say("cluster_state is %s", f["cluster_state"]), "the node does not see a master for every slot", "calls fail with CLUSTERDOWN",
			showing(to.RedisCLI("--cluster", "check", f["addr"])), ""},
		{evicts, Warning, say("maxmemory-policy is %s with %d MiB, of which %d%% are used", policy, most>>20, percent),
			"when the memory is full, keys of limiters are evicted like any other", "an evicted value gives Redisson a second burst; an evicted hash is a limiter that is not initialized",
			word("keep limiters on a server with noeviction, or with volatile-* and no keep-alive"),
			"an evicted value is rebuilt from the grants, and evicted grants are free again; an evicted hash is a limiter that is not initialized, unless it has WithRate"},
		{lapses, Info, say("maxmemory-policy is %s", policy), "keys with a TTL can be evicted: limiters with a keep-alive, and the permits of our PER_CLIENT clients",
			"as above, for these limiters only", word("give limiters that matter no TTL"), ""},
		{!evicts && !lapses && most > 0 && used > most/10*9, Warning, say("%d%% of maxmemory are used, and the policy is %s", percent, policy), "the server is nearly full",
			"when it is full, every acquire fails with OOM", word("raise maxmemory, or delete what is not needed"), ""},
		{f.number("evicted_keys") > 0, Warning, say("%s evicted since the start", Counted(f.number("evicted_keys"), "key")), "keys of limiters may have been among them",
			"limiters that lose their value admit a second burst in Java, and are rebuilt by Go", say("%s finds what is broken, and says how to fix it", showing(to.Command("doctor", nil))), ""},
		{f["save"] == "none" && f["aof_enabled"] == "0", Info, word("neither RDB nor AOF is on"), "a restart loses all limiters",
			"after a restart every limiter is not initialized until somebody calls TrySetRate, and begins with all permits free",
			word("set the rates at the start of each service, as trySetRate is meant to be used"),
			"after a restart a limiter with WithRate gets its rate back from the next call, every other is not initialized until somebody calls TrySetRate; both begin with all permits free"},
		{failed("rdb_last_bgsave_status") && f["save"] != "none", Critical, word("the last background save failed"), "with stop-writes-on-bgsave-error the server rejects writes",
			"every acquire fails with MISCONF", log, ""},
		{failed("aof_last_write_status") && f["aof_enabled"] == "1", Critical, word("the last write of the append-only file failed"), "the server rejects writes",
			"every acquire fails with MISCONF", log, ""},
		{good != "" && f.number("min_slaves_good_slaves") < least, Critical, say("%s good replicas, and min-replicas-to-write asks for %d", good, least),
			"the server rejects writes without enough replicas", "every acquire fails with NOREPLICAS", word("bring the replicas back"), ""},
	} {
		if x.is {
			y := finding("server", x.s, x.found, x.fix)
			y.Means, y.Java, y.Go = x.means, x.callers, cmp.Or(x.ours, x.callers)
			list = append(list, y)
		}
	}
	return list
}

// onItsWay finds the slots that a node gives to another or gets from one, in its line of CLUSTER NODES.
var onItsWay = regexp.MustCompile(`\[(\d+)-[<>]-[0-9a-f]+\]`)

func migrating(nodes string, to Target, addr string) (list []Finding) {
	for line := range strings.Lines(nodes) {
		if !strings.Contains(line, "myself") {
			continue
		}
		for _, m := range onItsWay.FindAllStringSubmatch(line, -1) {
			broken := word("it was broken off")
			x := finding("slot", Warning, say("slot %s is on its way between two nodes", m[1]),
				say("wait for the resharding; if %s: %s", broken, run(to.RedisCLI("--cluster", "fix", addr)).only(broken)))
			x.Means = "the cluster is being resharded, or a resharding was broken off"
			x.Java = "calls of limiters in that slot fail with TRYAGAIN while their keys are divided"
			x.Go = "calls are sent again until the keys are together"
			list = append(list, x)
		}
	}
	return list
}
