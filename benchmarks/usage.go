// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A usage is what the server reports about its own work since the last reset.
type usage struct {
	cpu         float64 // seconds, user and system, since the start
	scriptCalls int64   // EVAL and EVALSHA
	scriptTime  float64 // seconds in them
	pings       int64
	commands    map[string]commandCount
}

// A commandCount counts the calls of one command, those of scripts included.
type commandCount struct {
	calls   int64
	seconds float64
}

// plus returns the sum of what two servers report.
func (u usage) plus(other usage) usage {
	sum := usage{cpu: u.cpu + other.cpu, scriptCalls: u.scriptCalls + other.scriptCalls, scriptTime: u.scriptTime + other.scriptTime,
		pings: u.pings + other.pings, commands: maps.Clone(u.commands)}
	if sum.commands == nil {
		sum.commands = map[string]commandCount{}
	}
	for name, c := range other.commands {
		mine := sum.commands[name]
		sum.commands[name] = commandCount{mine.calls + c.calls, mine.seconds + c.seconds}
	}
	return sum
}

// asking returns the server time, in seconds, of a contestant's commands: its scripts, and the others that it sent.
func (u usage) asking(a about) float64 {
	total := u.scriptTime
	if !a.reads {
		return total
	}
	for _, name := range []string{"time", "setnx", "expire"} {
		total += u.commands[name].seconds
	}
	// It reads by GET, and its script does too, once a call.
	if get := u.commands["get"]; get.calls > u.scriptCalls {
		total += get.seconds * float64(get.calls-u.scriptCalls) / float64(get.calls)
	}
	return total
}

// ran returns how many commands the server ran for the requests, those of scripts included, but not the script
// calls themselves.
func (u usage) ran() int64 {
	total := int64(0)
	for name, c := range u.commands {
		switch name {
		case "eval", "evalsha", "info", "config|resetstat": // the last two are those of readUsage itself
		default:
			total += c.calls
		}
	}
	return total
}

// resetUsage resets the counts.
func resetUsage(ctx context.Context, rdb *redis.Client) (usage, error) {
	if err := rdb.ConfigResetStat(ctx).Err(); err != nil {
		return usage{}, err
	}
	return readUsage(ctx, rdb)
}

func readUsage(ctx context.Context, rdb *redis.Client) (usage, error) {
	cpu, err := info(ctx, rdb, "cpu")
	if err != nil {
		return usage{}, err
	}
	commands, err := info(ctx, rdb, "commandstats")
	if err != nil {
		return usage{}, err
	}
	u := usage{commands: map[string]commandCount{}}
	if u.cpu, err = cpuSeconds(cpu); err != nil {
		return usage{}, err
	}
	for name, line := range commands {
		name, _ = strings.CutPrefix(name, "cmdstat_")
		calls, micros := commandStat(line)
		u.commands[name] = commandCount{calls, micros / 1e6}
	}
	for _, name := range []string{"eval", "evalsha"} {
		u.scriptCalls += u.commands[name].calls
		u.scriptTime += u.commands[name].seconds
	}
	u.pings = u.commands["ping"].calls
	return u, nil
}

// cpuSeconds returns the CPU time that the server has used, by the fields of INFO cpu.
func cpuSeconds(cpu map[string]string) (total float64, err error) {
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu[name], 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %s: %w", name, err)
		}
		total += seconds
	}
	return total, nil
}

// commandStat parses "calls=5,usec=10,…". A command that was not called has no line.
func commandStat(line string) (calls int64, micros float64) {
	for field := range strings.SplitSeq(line, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "calls":
			calls, _ = strconv.ParseInt(value, 10, 64)
		case "usec":
			micros, _ = strconv.ParseFloat(value, 64)
		}
	}
	return calls, micros
}

// memory returns the bytes that keys take in Redis, with all members counted.
func memory(ctx context.Context, rdb *redis.Client, keys []string) (int64, error) {
	total := int64(0)
	for _, key := range keys {
		n, err := rdb.MemoryUsage(ctx, key, 0).Result()
		if err != nil {
			return 0, fmt.Errorf("MEMORY USAGE %s: %w", key, err)
		}
		total += n
	}
	return total, nil
}

// info returns a section of INFO.
func info(ctx context.Context, rdb *redis.Client, section string) (map[string]string, error) {
	text, err := rdb.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	return fields(text), nil
}

// fields returns the fields of a reply to INFO.
func fields(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			all[name] = value
		}
	}
	return all
}
