// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/internal/ops/rights"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
)

// anyClient stands for the id of any client of a PER_CLIENT limiter in the keys that a server is asked about.
const anyClient = "any-client"

// needs returns what a user needs for the connection and for a limiter: to acquire, the keys of its type, or of both if that is not known,
// and to administer always those of both.
func (d *Doctor) needs(role rights.Role, name string, known []permit.Type) []rights.Right {
	list := rights.Connection(d.target().DB, d.Survey.Divided())
	for _, typ := range []permit.Type{permit.Overall, permit.PerClient} {
		for _, r := range rights.Of(role, name, anyClient, typ) {
			if r.Role == rights.Administer || slices.Contains(known, typ) {
				list = append(list, r)
			}
		}
	}
	return list
}

// Access asks each server, by ACL DRYRUN, which of the rights that a role takes a user of the application lacks. If name is not
// empty, it also looks at the keys of that limiter. Nothing is run.
func (d *Doctor) Access(ctx context.Context, user, name string, role rights.Role) (*Report, error) {
	r := &Report{Findings: []Finding{}, Skipped: []Skip{}}
	nodes, err := d.nodes(ctx, r)
	if err != nil {
		return nil, err
	}
	types := []permit.Type{permit.Overall, permit.PerClient}
	if name != "" {
		if st, err := d.Survey.Read(ctx, name, ""); err == nil && st.Problem == nil {
			types = []permit.Type{st.Rate.Type}
		}
	}
	needs := d.needs(role, name, types)
	for _, node := range nodes {
		denied, err := deniedBy(ctx, node, user, needs, name != "")
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.skip(Skip{Check: "acl", Node: node.Addr}, false, fmt.Errorf("ACL DRYRUN: %w", err))
			continue
		}
		may, err := maySetUsers(ctx, node, cmp.Or(d.target().User, "default"), user)
		if err != nil {
			return nil, err
		}
		for _, f := range denied.findings(user, name, d.target().At(node.Addr), may) {
			f.Limiter, f.Node = name, node.Addr
			r.Findings = append(r.Findings, f)
		}
	}
	return r, nil
}

// maySetUsers reports whether the user that looks may change the rights of another.
func maySetUsers(ctx context.Context, node survey.Node, looks, user string) (bool, error) {
	text, err := node.Client.Do(ctx, "acl", "dryrun", looks, "acl", "setuser", user).Text()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil && text == "OK", nil
}

// A denial is a right that a user lacks on a server: it may not run a command, or not on a key.
type denial struct {
	rights.Right
	key string // that it may not use; empty if it may not run the command
}

type denials []denial

// deniedBy returns those of the needs that a user lacks on a server. Those that lack a key alone count if keys is true.
func deniedBy(ctx context.Context, node survey.Node, user string, needs []rights.Right, keys bool) (list denials, err error) {
	p := node.Client.Pipeline()
	replies := make([]*redis.Cmd, len(needs))
	for i, right := range needs {
		replies[i] = p.Do(ctx, append([]any{"acl", "dryrun", user}, right.Args...)...)
	}
	_, _ = p.Exec(ctx) // each reply has its own error
	for i, right := range needs {
		text, err := replies[i].Text()
		if err != nil {
			return nil, err
		}
		if key, isKey := deniedKey(text); text != "OK" && (keys || !isKey) {
			list = append(list, denial{right, key})
		}
	}
	return list, nil
}

// deniedKey returns the key that a reply of ACL DRYRUN is about. It reports false if it is about the command.
func deniedKey(text string) (string, bool) {
	_, rest, ok := strings.Cut(text, "access the '")
	if !ok {
		return "", false
	}
	return strings.TrimSuffix(strings.TrimSuffix(rest, "key"), "' "), true
}

// findings returns what the user lacks to acquire, and what it lacks besides to administer: a user who is to acquire only
// lacks that, too. If the user that looks may not change that, somebody else has to.
func (list denials) findings(user, name string, to Target, may bool) (found []Finding) {
	if !may {
		to.User = "ADMIN"
	}
	patterns, rules := rights.Patterns(name), []string{}
	for _, role := range []rights.Role{rights.Acquire, rights.Administer} {
		var commands, keys, operations, missing []string
		for _, r := range list {
			rule, lacks := "+"+r.Rule, &commands
			switch {
			case r.key == name && name != "":
				rule = patterns[0]
			case r.key != "":
				rule = patterns[1]
			}
			if r.Role != role || slices.Contains(rules, rule) {
				continue
			}
			what := r.Rule
			if r.key != "" {
				what, lacks = r.key, &keys
				if of, ok := strings.CutSuffix(r.key, anyClient); ok {
					what = of + "*"
				}
			}
			*lacks = append(*lacks, what)
			missing, operations = append(missing, rule), append(operations, r.Operation)
		}
		if missing = unique(missing); len(missing) == 0 {
			continue
		}
		rules = append(rules, missing...)
		var text []string
		if len(commands) > 0 {
			text = append(text, "may not run "+strings.Join(unique(commands), ", "))
		}
		if len(keys) > 0 {
			text = append(text, fmt.Sprintf("may not access %q", unique(keys)))
		}
		s := Critical
		if role == rights.Administer {
			s = Warning
		}
		found = append(found, finding("acl", s,
			say("the user %q %s, which these need: %s", user, strings.Join(text, ", and "), strings.Join(unique(operations), ", ")),
			advised(run(to.RedisCLI(slices.Concat([]string{"acl", "setuser", user}, missing)...)), may)))
	}
	return found
}

// advised returns a command that changes the rights of a user, for whoever may run it.
func advised(command Text, may bool) Text {
	if may {
		return command
	}
	admin := word("ADMIN stands for a user that may run ACL SETUSER, which this one may not")
	return command.onlyIf(admin)
}

// unique returns a list without those that came before.
func unique(list []string) (once []string) {
	for _, x := range list {
		if !slices.Contains(once, x) {
			once = append(once, x)
		}
	}
	return once
}
