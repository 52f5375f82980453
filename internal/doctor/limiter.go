// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// limiterChecks are the checks of one limiter, those of what harms callers most first.
var limiterChecks = []func(*patient) []Finding{
	(*patient).wrongType, (*patient).malformed, (*patient).balance, (*patient).layouts, (*patient).twins,
	(*patient).clock, (*patient).ttl, (*patient).otherType, (*patient).deadClients, (*patient).hugeSet,
	(*patient).hotKey, (*patient).coolDown, (*patient).minGap, (*patient).slot, (*patient).writers,
}

const (
	manyMembers = 10_000
	// deadAfter is for how long a client must not have acquired to count as dead; at least two intervals.
	deadAfter = time.Hour
)

// of returns a finding about one of the patient's states.
func (p *patient) of(st *survey.State, check string, s Severity, fix Text, format string, args ...any) Finding {
	f := finding(check, s, say(format, args...), fix)
	f.Limiter, f.Base64, f.Client, f.Node = p.name, survey.Base64(p.name), st.ClientID, st.Node
	return f
}

// rrl returns a command of rrl about the limiter.
func (p *patient) rrl(command string, flags ...string) Cmd {
	return p.to.At(p.main.Node).Command(command, []string{p.name}, flags...)
}

// cli returns a command of redis-cli.
func (p *patient) cli(words ...string) Cmd { return p.to.At(p.main.Node).RedisCLI(words...) }

// healing returns the command that heals a state.
func (p *patient) healing(st *survey.State) Cmd {
	if st.ClientID == "" {
		return p.rrl("heal", "--write")
	}
	return p.rrl("heal", Flag("--client", st.ClientID), "--write")
}

// wrongType finds keys that hold something else. To move one away must not free what is in use: when value is gone, Java
// takes all of the rate to be free, and when the grants are gone, so does Go.
func (p *patient) wrongType() (list []Finding) {
	perClient := p.main.Problem == nil && p.main.Rate.Type == permit.PerClient
	for n, st := range append([]*survey.State{p.main}, p.clients...) {
		for i, typ := range st.Types {
			want := survey.KeyTypes[i]
			// A PER_CLIENT limiter does not use the keys that all clients share, and each client is looked at by itself. Without
			// a hash nothing shows that the key is meant to be a limiter's.
			if typ == "none" || typ == want || i == 0 && n > 0 || i > 0 && n == 0 && (perClient || st.ClientID != "" || !st.HashShows()) {
				continue
			}
			key, away := st.Keys[i], redisson.Suffixed(p.name, "moved-"+want)
			move, then := p.cli("renamenx", key, away), p.healing(st)
			switch i {
			case 0:
				then = p.setRate(nil)
			case 1:
				move = p.cli("eval", `if redis.call("renamenx", KEYS[1], KEYS[2]) == 1 then return redis.call("set", KEYS[1], 0) end`, "2", key, away)
			}
			fix := say("give one of the two another name, such as: %s; then %s", move, then)
			if i == 2 {
				wait := word("an interval")
				if p.main.Problem == nil {
					wait = word(p.main.Rate.Interval.String())
				}
				fix = say("wait for %s, in which every call fails, so that nothing is in use; then %s", wait, fix)
			}
			list = append(list, p.of(st, "wrong-type", Critical, fix, "%q is a %s, not a %s", key, typ, want))
		}
	}
	return list
}

// onlyClients reports whether the permits in use are those of clients.
func (p *patient) onlyClients() bool { return !p.main.GrantsShow() && len(p.clients) > 0 }

// typeFlag returns the type that a limiter has whose hash does not say it: that of the permits in use.
func (p *patient) typeFlag() (field, flag string) {
	typ := p.main.Fields["type"]
	if typ != "0" && typ != "1" {
		if typ = "0"; p.onlyClients() {
			typ = "1"
		}
	}
	if typ == "1" {
		return typ, "--type per_client"
	}
	return typ, "--type overall"
}

// setRate returns the command that makes a limiter of what is there, with the permits in use kept. It has what the fields
// say, as far as that is sound.
func (p *patient) setRate(fields map[string]string) Cmd {
	permits, interval := "--permits N", "--interval D"
	if n := redisson.Instant(fields["rate"]); n >= 1 && n < 1<<53 {
		permits = fmt.Sprintf("--permits %.0f", n)
	}
	if n := redisson.Instant(fields["interval"]); n >= 1 && n < 1<<43 {
		interval = "--interval " + (time.Duration(n) * time.Millisecond).String()
	}
	_, typ := p.typeFlag()
	flags := []string{permits, interval, typ}
	if p.onlyClients() {
		flags = append(flags, Flag("--client", p.clients[0].ClientID))
	}
	return p.rrl("set-rate", append(flags, "--write")...)
}

// malformed finds a hash that is not that of a limiter: its fields are wrong, or missing.
func (p *patient) malformed() []Finding {
	if p.main.Problem == nil || p.main.Types[0] != "hash" {
		return nil
	}
	fields := p.main.Fields
	if !errors.Is(p.main.Problem, permit.ErrNotInitialized) {
		text := strings.TrimPrefix(p.main.Problem.Error(), permit.ErrMalformed.Error()+": ")
		fix := run(p.setRate(fields))
		switch {
		case strings.HasPrefix(text, "type"): // with another type set-rate would forget the permits in use
			typ, _ := p.typeFlag()
			fix = run(p.cli("hset", p.name, "type", typ))
		case strings.HasPrefix(text, "keepAliveTime"):
			fix = run(p.cli("hset", p.name, "keepAliveTime", "0"))
		}
		field, value, _ := strings.Cut(text, " is ")
		return []Finding{p.of(p.main, "malformed", Critical, fix, "%s is %s", field, value)}
	}
	var missing []string
	there := 0
	for _, field := range []string{"rate", "interval", "type"} {
		if _, ok := fields[field]; ok {
			there++
		} else {
			missing = append(missing, field)
		}
	}
	if !p.ours() {
		return nil // it is the hash of somebody else
	}
	fix := run(p.setRate(fields))
	if _, ok := fields["keepAliveTime"]; there == 0 && !ok { // only the permits are ours
		fix = word("give one of the two another name")
	}
	f := p.of(p.main, "malformed", Critical, fix, "the hash has no %s", strings.Join(missing, ", "))
	f.Java, f.Go = `calls fail with "RateLimiter is not initialized"`, "calls return ErrNotInitialized"
	return []Finding{f}
}

// balance compares what is left and what is in use with the rate.
func (p *patient) balance() (list []Finding) {
	for _, st := range p.states() {
		if st.Problem != nil || p.main.Problem != nil {
			continue
		}
		rate := st.Rate.Permits
		value, ok := st.ValueNumber()
		sum, expired, whole := st.Sum()
		switch {
		case strange(st): // nobody knows how many permits those members are, and it is a finding of its own
		case st.HasValue && !ok:
			list = append(list, p.of(st, "value", Critical, run(p.healing(st)), "the value is %q", shorten(st.Value)))
		case !whole:
		case !st.HasValue && st.Types[1] == "none" && sum > expired:
			list = append(list, p.of(st, "value", Critical, run(p.healing(st)), "there is no value, and %d of %d permits are in use", sum-expired, rate))
		case !st.HasValue:
		case value+expired < rate && sum == expired:
			s := Warning
			if value+expired < 1 {
				s = Critical
			}
			list = append(list, p.of(st, "stuck", s, run(p.healing(st)), "%d of %d permits are left and none is in use", value+expired, rate))
		case value+sum < rate:
			list = append(list, p.of(st, "lost", Warning, run(p.healing(st)), "%d left and %d in the set are %s less than the rate of %d",
				value, sum, counted(rate-value-sum, "permit"), rate))
		case value+sum > rate:
			list = append(list, p.of(st, "surplus", Warning, run(p.healing(st)), "%d left and %d in the set are %s more than the rate of %d",
				value, sum, counted(value+sum-rate, "permit"), rate))
		}
	}
	return list
}

// strange reports whether a set has members that no limiter writes.
func strange(st *survey.State) bool {
	return slices.ContainsFunc(st.Members, func(m survey.Member) bool { return !m.Known() })
}

// layoutCount counts the members of a state by layout, in the order of the layouts.
func layoutCount(st *survey.State) (layouts []wire.Layout, count map[wire.Layout]int) {
	count = map[wire.Layout]int{}
	for _, m := range st.Members {
		y := m.Layout()
		if !m.Known() {
			y = wire.LayoutUnknown
		}
		if count[y]++; count[y] == 1 {
			layouts = append(layouts, y)
		}
	}
	slices.Sort(layouts)
	return layouts, count
}

// family returns a letter for each group of Redisson versions that read each other's members: those who read a layout.
func family(y wire.Layout) string {
	switch y {
	case wire.LayoutFI:
		return "a"
	case wire.LayoutLc0I:
		return "b"
	case wire.LayoutBc0IShort, wire.LayoutBc0ILong:
		return "c"
	case wire.LayoutOurs:
		return "ac"
	}
	return ""
}

// layouts finds members that some version of Redisson that writes here cannot read.
func (p *patient) layouts() (list []Finding) {
	for _, st := range p.states() {
		layouts, count := layoutCount(st)
		readers := "abc"
		var parts []Text
		for _, y := range layouts {
			readers = strings.Map(func(r rune) rune {
				if strings.ContainsRune(family(y), r) {
					return r
				}
				return -1
			}, readers)
			parts = append(parts, say("%d of %s (%s)", count[y], word(y.String()), word(y.Writers())))
		}
		if readers != "" {
			continue
		}
		fix := say("bring all Java services to one group of versions, and Go to its format; then %s", p.healing(st))
		if slices.Contains(layouts, wire.LayoutUnknown) {
			fix = say("find out who writes to %q; %s shows the bytes", st.Keys[2], p.rrl("inspect", "--members"))
		}
		list = append(list, p.of(st, "layouts", Critical, fix, "%s", Listed(", ", parts)))
	}
	return list
}

func (p *patient) twins() []Finding {
	if p.twin == "" || errors.Is(p.main.Problem, permit.ErrNotInitialized) {
		return nil
	}
	return []Finding{p.of(p.main, "shared-keys", Critical, word("give one of the two another name"),
		"the limiter %q has the same keys %q and %q", p.twin, p.main.Keys[1], p.main.Keys[2])}
}

// busy returns for how long the newest of the permits in use stay in use, or 0.
func busy(st *survey.State) (left time.Duration) {
	for _, m := range st.Members {
		if !m.Expired(st.Time, st.Rate.Interval) && m.Permits > 0 {
			left = max(left, m.Time().Add(st.Rate.Interval).Sub(st.Time))
		}
	}
	return left
}

// expiring returns the command that makes the value and the permits of a state live as long as acquire would: as long as
// the hash, and without a TTL of the hash those of a client for an hour, or two intervals if that is more.
func (p *patient) expiring(st *survey.State) Text {
	ttl := p.main.TTLs[0]
	if ttl < 0 && st.ClientID != "" {
		ttl = max(time.Hour, 2*st.Rate.Interval)
	}
	var commands []Cmd
	for i, key := range st.Keys[1:] {
		switch {
		case st.TTLs[i+1] == -2:
		case ttl >= 0:
			commands = append(commands, p.cli("pexpire", key, fmt.Sprint(ttl.Milliseconds())))
		default:
			commands = append(commands, p.cli("persist", key))
		}
	}
	return run(commands...)
}

func (p *patient) ttl() (list []Finding) {
	if errors.Is(p.main.Problem, permit.ErrNotInitialized) {
		if p.main.Types[0] != "none" {
			return nil
		}
		for _, st := range append([]*survey.State{p.main}, p.clients...) {
			if !st.GrantsShow() {
				continue
			}
			s, when := Warning, word("and never expires")
			if st.TTLs[1] != -1 && st.TTLs[2] != -1 {
				s, when = Info, say("and expires in %v", max(st.TTLs[1], st.TTLs[2]).Round(time.Second))
			}
			fix := say("if it is still used: %s, which keeps the permits in use; if not, when an interval has passed since the last grant: %s",
				p.setRate(nil), p.cli("unlink", st.Keys[1], st.Keys[2]))
			list = append(list, p.of(st, "remains", s, fix, "there is no hash %q; what is left has %s %s", p.name, counted(st.Count, "member"), when))
		}
		return list
	}
	if p.main.Problem != nil {
		return nil
	}
	// A keep-alive of an interval keeps all keys until nothing is in use any more, and lets them go when nobody calls.
	keepAlive := run(p.rrl("set-rate", "--keep-alive "+p.main.Rate.Interval.String(), "--write"))
	if keep := p.main.Rate.KeepAlive; keep > 0 && keep < p.main.Rate.Interval {
		list = append(list, p.of(p.main, "ttl", Warning, keepAlive, "the keep-alive of %v is shorter than the interval of %v", keep, p.main.Rate.Interval))
	}
	for _, st := range p.states() {
		left, hash := busy(st), p.main.TTLs[0]
		switch {
		case left > 0 && hash >= 0 && hash+time.Second < left:
			fix := keepAlive
			if st.ClientID != "" {
				fix = run(p.rrl("set-rate", "--keep-alive "+p.main.Rate.Interval.String(), Flag("--client", st.ClientID), "--write"))
			}
			list = append(list, p.of(st, "ttl", Warning, fix,
				"the limiter expires in %v, but permits are in use for %v", hash.Round(time.Millisecond), left.Round(time.Millisecond)))
		case left > 0 && st.TTLs[2] >= 0 && st.TTLs[2]+time.Second < left:
			list = append(list, p.of(st, "ttl", Warning, p.expiring(st),
				"the grants expire in %v, but permits are in use for %v", st.TTLs[2].Round(time.Millisecond), left.Round(time.Millisecond)))
		case left > 0 && st.HasValue && st.TTLs[1] >= 0 && st.TTLs[1]+time.Second < left:
			list = append(list, p.of(st, "ttl", Warning, p.expiring(st),
				"the value expires in %v, but permits are in use for %v", st.TTLs[1].Round(time.Millisecond), left.Round(time.Millisecond)))
		case st.HasValue && st.Count > 0 && st.TTLs[1] == -1 && st.TTLs[2] >= 0:
			list = append(list, p.of(st, "ttl", Info, p.expiring(st),
				"the value has no TTL but the grants have one of %v, as after Redisson's availablePermits", st.TTLs[2].Round(time.Second)))
		}
	}
	return list
}

func (p *patient) otherType() (list []Finding) {
	if p.main.Problem != nil {
		return nil
	}
	if p.main.Rate.Type == permit.PerClient {
		if p.main.GrantsShow() {
			list = append(list, p.of(p.main, "other-type", Warning, run(p.cli("unlink", p.main.Keys[1], p.main.Keys[2])),
				"the limiter is PER_CLIENT, and keys of an OVERALL one with %s are left", counted(p.main.Count, "member")))
		}
		return list
	}
	if len(p.clients) > 0 {
		list = append(list, p.of(p.main, "other-type", Warning, p.unlinking(p.clients),
			"the limiter is OVERALL, and keys of %s%s of a PER_CLIENT one are left", p.atLeast(), counted(len(p.clients), "client")))
	}
	return list
}

// manyKeys is of how many clients the keys are named in a command.
const manyKeys = 20

// unlinking returns the command that deletes the keys of clients.
func (p *patient) unlinking(clients []*survey.State) Text {
	words := []string{"unlink"}
	for _, st := range clients[:min(manyKeys, len(clients))] {
		words = append(words, st.Keys[1], st.Keys[2])
	}
	fix := run(p.cli(words...))
	if n := len(clients) - manyKeys; n > 0 {
		fix = say("%s; then %s, for the other %d", fix, p.rrl("doctor"), n)
	}
	return fix
}

func (p *patient) atLeast() Text {
	if p.more {
		return word("more than ")
	}
	return Text{}
}

func (p *patient) deadClients() []Finding {
	if p.main.Problem != nil || p.main.Rate.Type != permit.PerClient {
		return nil
	}
	var dead []*survey.State
	for _, st := range p.clients {
		idle := max(deadAfter, 2*st.Rate.Interval)
		if st.HasValue && st.TTLs[1] != -1 || st.Count > 0 && st.TTLs[2] != -1 || st.Count == 0 {
			continue
		}
		if newest := st.Members[len(st.Members)-1]; st.Time.Sub(newest.Time()) > idle {
			dead = append(dead, st)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	st := dead[0]
	f := p.of(p.main, "dead-clients", Warning, p.unlinking(dead),
		"%s%d of %d clients have not acquired for an hour or more and their keys have no TTL; one is %s", p.atLeast(), len(dead), len(p.clients), st.ClientID)
	return []Finding{f}
}

func (p *patient) hugeSet() (list []Finding) {
	for _, st := range p.states() {
		expired := 0
		for _, m := range st.Members {
			if st.Problem == nil && m.Expired(st.Time, st.Rate.Interval) {
				expired++
			}
		}
		memory := ""
		if p.memory > 0 && st == p.main {
			memory = fmt.Sprintf(", %d KiB", p.memory>>10)
		}
		switch {
		case st.Count > manyMembers:
			list = append(list, p.of(st, "huge-set", Info, word("a lower rate, or a shorter interval; package limit has limiters whose state does not grow"),
				"%d members%s", st.Count, memory))
		case expired >= quickMembers && 2*expired > int(st.Count):
			list = append(list, p.of(st, "huge-set", Info, say("one call of Go for each 512 of them, before Java's next one: %s shows how many are left", p.rrl("watch")),
				"%d of %d members have expired and nobody has reclaimed them", expired, st.Count))
		}
	}
	return list
}

func (p *patient) slot() []Finding {
	tag, key, other := redisson.NewKeys(p.name, "").Apart()
	if key == "" {
		return nil
	}
	s, where := Info, word("this Redis is no cluster, where it does no harm: ")
	if p.divided {
		s, where = Critical, Text{}
	}
	return []Finding{p.of(p.main, "slot", s, word("use a name without braces, or with one hash tag"),
		"%s%q hashes by %q but its key %q hashes by %q; use a name without braces, or with one hash tag", where, p.name, tag, key, other)}
}

// writers says which versions have written what is there.
func (p *patient) writers() (list []Finding) {
	for _, st := range p.states() {
		count := map[string]int{}
		for _, m := range st.Members {
			count[m.Writers()]++
		}
		if len(count) == 0 {
			continue
		}
		var parts []Text
		for y := wire.LayoutUnknown; y <= wire.LayoutOurs; y++ {
			if n := count[y.Writers()]; n > 0 {
				parts = append(parts, say("%d by %s", n, word(y.Writers())))
			}
		}
		if n := count[survey.FastWriter]; n > 0 {
			parts = append(parts, say("%d by %s", n, word(survey.FastWriter)))
		}
		if _, ok := st.Fields["keepAliveTime"]; ok {
			parts = append(parts, word("the hash by Redisson 3.38.0 or later, or Go"))
		} else if st.Problem == nil {
			parts = append(parts, word("the hash by Redisson before 3.38.0"))
		}
		list = append(list, p.of(st, "writers", Info, Text{}, "%s", Listed("; ", parts)))
	}
	if p.more {
		list = append(list, p.of(p.main, "clients", Info, run(p.rrl("doctor", "--max-clients N")), "only %d clients were looked at", len(p.clients)))
	}
	return list
}

// shorten returns the beginning of a text that may be long.
func shorten(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}
