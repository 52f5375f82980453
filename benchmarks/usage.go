package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A usage is what the server says of its own work since the last reset.
type usage struct {
	cpu         float64 // seconds, user and system, since the start
	scriptCalls int64   // EVAL and EVALSHA
	scriptTime  float64 // seconds in them
	pings       int64
}

// resetUsage begins a new count of commands.
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
	var u usage
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu[name], 64)
		if err != nil {
			return usage{}, fmt.Errorf("INFO cpu: %s: %w", name, err)
		}
		u.cpu += seconds
	}
	for _, name := range []string{"eval", "evalsha"} {
		calls, micros := commandStat(commands["cmdstat_"+name])
		u.scriptCalls += calls
		u.scriptTime += micros / 1e6
	}
	u.pings, _ = commandStat(commands["cmdstat_ping"])
	return u, nil
}

// commandStat reads "calls=5,usec=10,…"; a command that was not called has no line.
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

// memory is what keys take in Redis, each member counted.
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

// info is a section of INFO.
func info(ctx context.Context, rdb *redis.Client, section string) (map[string]string, error) {
	text, err := rdb.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
