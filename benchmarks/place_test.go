// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A place is a Redis as the contestants see it.
type place struct {
	addrs []string        // the server, or the masters of a cluster
	nodes []*redis.Client // to the servers themselves, for what is not measured
	hook  redis.Hook      // of contestants on go-redis, or nil
}

func placeOf(addrs ...string) place {
	p := place{addrs: addrs}
	for _, addr := range addrs {
		p.nodes = append(p.nodes, place{addrs: []string{addr}}.client().(*redis.Client))
	}
	return p
}

// client returns a client with the defaults of go-redis, except for a long timeout, since a script that is sent again after a
// timeout could grant twice, and except for the commands at connect that older servers do not know.
func (p place) client() redis.UniversalClient {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: p.addrs, ReadTimeout: time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	if p.hook != nil {
		rdb.AddHook(p.hook)
	}
	return rdb
}

// empty deletes all keys.
func (p place) empty(t require.TestingT) {
	for _, node := range p.nodes {
		require.NoError(t, node.FlushAll(context.Background()).Err())
	}
}

// farAway returns the server behind a link on which each byte takes a millisecond there and a millisecond back. It does not
// limit how much is on its way. The proxy of redistest would read each command, which costs more than Redis takes for it.
func farAway(tb testing.TB) place {
	const delay = time.Millisecond
	listener := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(tb)
	tb.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", local.addrs[0])
			if err != nil {
				_ = client.Close()
				continue
			}
			go pass(server, client, delay)
			go pass(client, server, delay)
		}
	}()
	return place{addrs: []string{listener.Addr().String()}, nodes: local.nodes}
}

// pass copies what comes from one side to the other, each piece when its time has come.
func pass(to, from net.Conn, delay time.Duration) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1<<16)
	go func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close()
			}
		}
	}()
	defer close(pieces)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		pieces <- piece{b[:n], time.Now().Add(delay)}
	}
}

// cluster starts three masters.
func cluster(tb testing.TB) place { return clusterOf(tb, 3) }

// clusterOf starts masters. All of them are on this machine, and share its cores with each other and with the callers.
func clusterOf(tb testing.TB, masters int) place {
	var addrs []string
	for _, node := range redistest.StartClusterOf(tb, masters).Nodes() {
		addrs = append(addrs, node.Addr())
	}
	return placeOf(addrs...)
}

// A usage is what Redis reports about its own work.
type usage struct {
	cpu      time.Duration // since the start
	script   time.Duration // in EVAL and EVALSHA
	calls    int64         // of EVAL and EVALSHA
	idlest   int64         // those of the node with the fewest
	commands int64         // those of scripts included, the calls of scripts not
}

// resetUsage makes usage count anew, but for the CPU time, which it returns.
func (p place) resetUsage(t require.TestingT) time.Duration {
	for _, node := range p.nodes {
		require.NoError(t, node.ConfigResetStat(context.Background()).Err())
	}
	return p.cpu(t)
}

// cpu adds up the CPU time of the nodes.
func (p place) cpu(t require.TestingT) (total time.Duration) {
	for _, node := range p.nodes {
		total += redistest.Must(cpuTime(redistest.Must(node.Info(context.Background(), "cpu").Result())(t)))(t)
	}
	return total
}

var commandStat = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+),usec=(\d+)`)

// usage adds up what the nodes report.
func (p place) usage(t require.TestingT) usage {
	u := usage{cpu: p.cpu(t), idlest: 1 << 62}
	for _, node := range p.nodes {
		before := u.calls
		for _, m := range commandStat.FindAllStringSubmatch(redistest.Must(node.Info(context.Background(), "commandstats").Result())(t), -1) {
			calls, micros := redistest.Must(strconv.ParseInt(m[2], 10, 64))(t), redistest.Must(strconv.ParseInt(m[3], 10, 64))(t)
			switch m[1] {
			case "eval", "evalsha":
				u.calls, u.script = u.calls+calls, u.script+time.Duration(micros)*time.Microsecond
			case "info", "config|resetstat": // those of usage itself
			default:
				u.commands += calls
			}
		}
		u.idlest = min(u.idlest, u.calls-before)
	}
	return u
}

// cpuTime returns the time of user and system in a reply to INFO cpu.
func cpuTime(text string) (time.Duration, error) {
	var total time.Duration
	for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
		_, after, _ := strings.Cut(text, "\n"+name)
		value, _, _ := strings.Cut(after, "\r")
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu replied %q", text)
		}
		total += time.Duration(seconds * 1e9)
	}
	return total, nil
}

// memory returns the bytes that keys take in Redis, with all members counted.
func (p place) memory(t require.TestingT, keys []string) (total float64) {
	for _, key := range keys {
		total += float64(redistest.Must(p.nodes[0].MemoryUsage(context.Background(), key, 0).Result())(t))
	}
	return total
}
