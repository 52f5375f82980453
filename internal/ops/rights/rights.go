// SPDX-License-Identifier: Apache-2.0

// Package rights says what an ACL of Redis has to allow a user of limiters: which commands, on which keys. It reads the
// commands of a script, and the keys of each, in the script itself. The documentation, the doctor and the tests have
// them from here.
package rights

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A Role is what a user is to do.
type Role int

const (
	// Acquire is what a service does: it sets the rate of a limiter that has none, acquires, waits and gives back, looks, and
	// blocks a limiter that a platform has banned.
	Acquire Role = iota
	// Administer is to change limiters, too.
	Administer
)

// String returns the role as the flag of rrl doctor has it.
func (r Role) String() string { return [...]string{"acquire", "administer"}[r] }

// An operation is what a program does with a limiter, by a script or, if script is empty, by a command.
type operation struct {
	name   string
	role   Role
	script string
	plain  string
	keys   func(k redisson.Keys, t permit.Type) []string
}

func none(redisson.Keys, permit.Type) []string { return nil }

func hash(k redisson.Keys, _ permit.Type) []string { return []string{k.Hash} }

func own(k redisson.Keys, t permit.Type) []string { return k.Of(t) }

func ahead(k redisson.Keys, t permit.Type) []string { return append(k.Of(t), k.Ahead(t)) }

func all(k redisson.Keys, t permit.Type) []string { return k.All(t) }

func everything(k redisson.Keys, _ permit.Type) []string { return k.Everything() }

// operations are all that packages ratelimiter and redisson send. The tests compare the list with the scripts that are loaded,
// and with what a server is sent.
var operations = []operation{
	{"Acquire", Acquire, "acquire", "", own},
	{"Acquire", Acquire, "acquire_rest", "", own},
	{"Acquire", Acquire, "heal", "", own},
	{"AcquireAll", Acquire, "acquire_all", "", own},
	{"Acquire of many permits", Acquire, "reserve", "", ahead},
	{"Grant.Cancel", Acquire, "give_back", "", own},
	{"TrySetRate", Acquire, "try_set_rate", "", hash},
	{"AvailablePermits", Acquire, "available", "", own},
	{"Inspect", Acquire, "inspect", "", own},
	{"CoolDown", Acquire, "cool_down", "", own},
	{"CoolDownUntil", Acquire, "cool_down_until", "", hash},
	{"ExpireTime", Acquire, "expire_time", "", hash},
	{"Rate", Acquire, "rate", "", hash},
	{"Exists", Acquire, "exists", "", hash},
	{"TTL", Acquire, "ttl", "", hash},
	{"Ping", Acquire, "", "ping", none},
	{"SetRate", Administer, "set_rate", "", all},
	{"SetRate", Administer, "", "scan", none}, // finds the other clients of a PER_CLIENT limiter whose rate it lowers
	{"Clients", Administer, "", "scan", none},
	{"Release", Administer, "release", "", own},
	{"Expire", Administer, "expire", "", all},
	{"ClearExpire", Administer, "clear_expire", "", all},
	{"LiftCoolDown", Administer, "lift_cool_down", "", own},
	{"Delete", Administer, "delete", "", everything},
}

// A Right is one command on some keys, as an operation needs it.
type Right struct {
	Operation string
	Role      Role
	Rule      string   // the command as an ACL names it, without the sign before it
	Keys      []string // that it uses
	Args      []any    // the command, with arguments that Redis accepts
}

// arguments are what each command has after its keys, if there is more.
var arguments = map[string][]any{
	"hmget": {"f"}, "hget": {"f"}, "hset": {"f", "v"}, "hsetnx": {"f", "v"}, "hdel": {"f"}, "set": {"1"}, "incrby": {1}, "pexpire": {1}, "zadd": {1, "m"},
	"zrem": {"m"}, "zcount": {0, 1}, "zrank": {"m"}, "zscore": {"m"}, "zrange": {0, 1}, "zrevrange": {0, 1}, "zrangebyscore": {0, 1},
	"zrevrangebyscore": {1, 0}, "zremrangebyrank": {0, 1}, "zremrangebyscore": {0, 1}, "scan": {0},
}

func right(o operation, command string, keys []string) Right {
	r := Right{o.name, o.role, command, keys, []any{command}}
	for _, k := range keys {
		r.Args = append(r.Args, k)
	}
	r.Args = append(r.Args, arguments[command]...)
	return r
}

// call is a call of a command in a script, with its first keys.
var call = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'((?:, KEYS\[\d+\])*)`)

var number = regexp.MustCompile(`\d+`)

// ofScript returns what a script needs for its keys. A script of several limiters has the keys of each, one after the
// other.
func ofScript(o operation, s *dispatch.Script, keys []string) (list []Right) {
	of := make([]string, s.Keys)
	for i := range of {
		of[i] = keys[i%len(keys)]
	}
	for _, command := range []string{"evalsha", "eval"} {
		r := Right{o.name, o.role, command, keys, []any{command, strings.Repeat("0", 40), len(keys)}}
		for _, k := range keys {
			r.Args = append(r.Args, k)
		}
		list = append(list, r)
	}
	for _, m := range call.FindAllStringSubmatch(s.Src, -1) {
		var used []string
		for _, n := range number.FindAllString(m[2], -1) {
			i, _ := strconv.Atoi(n)
			used = append(used, of[i-1])
		}
		list = append(list, right(o, strings.ToLower(m[1]), used))
	}
	return list
}

// Of returns what a user with a role needs for the limiter of that name and type, those of Acquire first. Client is the id of a client of a PER_CLIENT limiter. A program that does not link package ratelimiter has no scripts,
// for which Of panics.
func Of(role Role, name, client string, t permit.Type) (list []Right) {
	k := redisson.NewKeys(name, client)
	for _, o := range operations {
		if o.role > role {
			continue
		}
		if o.script == "" {
			list = append(list, right(o, o.plain, o.keys(k, t)))
		} else {
			list = append(list, ofScript(o, Script(o.script), o.keys(k, t))...)
		}
	}
	return list
}

// Connection returns what go-redis sends by itself: to choose a database other than 0, and to find the nodes of a cluster.
func Connection(db int, cluster bool) (list []Right) {
	if db != 0 {
		list = append(list, Right{Operation: "every call", Rule: "select", Args: []any{"select", db}})
	}
	if cluster {
		list = append(list, Right{Operation: "every call", Rule: "cluster|slots", Args: []any{"cluster", "slots"}},
			Right{Operation: "every call", Rule: "command", Args: []any{"command"}})
	}
	return list
}

// Script returns the script of that name.
func Script(name string) *dispatch.Script {
	scripts := dispatch.Loaded()
	i := slices.IndexFunc(scripts, func(s *dispatch.Script) bool { return s.Name == name })
	if i < 0 {
		panic("rights: the script " + name + " is not loaded")
	}
	return scripts[i]
}

// Rules returns the rules of an ACL that allow the commands of rights, each once, in alphabetical order.
func Rules(rights []Right) (rules []string) {
	for _, r := range rights {
		rules = append(rules, "+"+r.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// Patterns returns the rules of an ACL that allow the keys of a limiter: that of its rate, and the others, which have an end for
// each purpose, type and client.
func Patterns(name string) []string {
	return []string{"~" + pattern(name), "~" + pattern(redisson.Suffixed(name, "")) + "*"}
}

// pattern returns the pattern of an ACL that matches a key. A rule cannot have spaces; a ? matches them.
func pattern(key string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\n\v\f\r", r) {
			return '?'
		}
		return r
	}, redisson.EscapePattern(key))
}

// Algorithms returns what a user with a role needs for the limiters of package limit, if the program links it, on the keys
// limit2:*.
func Algorithms(role Role) (list []Right) {
	known := map[string]bool{}
	for _, o := range operations {
		known[o.script] = true
	}
	for _, s := range dispatch.Loaded() {
		if !known[s.Name] {
			list = append(list, ofScript(operation{name: "Shared." + s.Name}, s, make([]string, s.Keys))...)
		}
	}
	if role == Administer {
		list = append(list, Right{Operation: "Shared.Reset", Role: Administer, Rule: "unlink"})
	}
	return list
}
