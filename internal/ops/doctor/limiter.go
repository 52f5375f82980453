// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// limiterChecks are the checks of one limiter, those of what harms callers most first.
var limiterChecks = []func(*patient) []Finding{
	(*patient).wrongType, (*patient).malformed, (*patient).balance, (*patient).layouts, (*patient).longLength, (*patient).twins,
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
	if p.twin != "" && len(fix.runs) > 0 { // what is right for one of two limiters that have the same keys is wrong for the other
		fix = keysFirst
	}
	f := finding(check, s, say(format, args...), fix)
	f.Limiter, f.Base64, f.Client, f.Node = p.name, survey.Base64(p.name), st.ClientID, st.Node
	return f
}

// rrl returns a command of rrl about the limiter.
func (p *patient) rrl(command string, flags ...string) Cmd {
	// What shows that the limiter is one may be in the keys of a client alone.
	named := slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--client") })
	if !named && (command == "set-rate" || command == "lift") {
		if l := p.main; l.Problem == nil && l.Rate.Type == permit.PerClient && !l.HashShows() && !l.GrantsShow() && len(p.clients) > 0 {
			flags = append(flags, Flag("--client", p.clients[0].ClientID))
		}
	}
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

// marksUnread is the condition on which a limiter may be healed in which Redisson 3.16.4 to 3.16.8 has written: every mark has a layout that
// these versions cannot read.
var marksUnread = word("no Redisson 3.16.4 to 3.16.8 uses the limiter, which could not read the marks")

// healable returns the condition on which the limiter may be healed; nothing if it always may.
func (p *patient) healable() Text {
	for _, st := range p.states() {
		if slices.ContainsFunc(st.Members, func(m survey.Member) bool { return m.Layout() == wire.LayoutLc0I }) {
			return marksUnread
		}
	}
	return Text{}
}

// heal returns what heals a state.
func (p *patient) heal(st *survey.State) Text { return run(p.healing(st)).onlyIf(p.healable()) }

// Until another finding is settled, an advice may end with an error, or do harm.
var (
	keysFirst = word("settle the finding shared-keys first")
	hashFirst = word("settle the finding malformed first")
)

// foreign reports whether a key of the limiter holds something else, so that set-rate ends with an error. That is a finding of its own.
func (p *patient) foreign() bool {
	return slices.ContainsFunc(p.states(), func(st *survey.State) bool { return st.WrongType() != nil })
}

// reachesOthers reports whether set-rate, or heal, would end with an error because of a key that holds something else, or reclaim members that
// are another program's. Both are findings of their own.
func (p *patient) reachesOthers() bool {
	return p.foreign() || slices.ContainsFunc(p.states(), strange)
}

// wrongType finds keys that hold something else. Only somebody who knows the other program can say whether it can do without
// its key. To move one away must not free what is in use: when value is gone, Java takes all of the rate to be free, and when the
// grants are gone, so does Go.
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
			if st.ClientID != "" {
				away += ":" + st.ClientID
			}
			move := p.cli("renamenx", key, away)
			when, wait := say("the other program does not use %q any more", key), time.Duration(0)
			var before Text
			switch i {
			case 1:
				move = p.cli("eval", `if redis.call("renamenx", KEYS[1], KEYS[2]) == 1 then return redis.call("set", KEYS[1], 0) end return redis.error_reply("ERR the new name is taken")`, "2", key, away)
			case 2:
				if p.main.Problem != nil {
					when = say("%s, and an interval has passed, in which every call failed, so that nothing is in use", when)
				} else {
					wait = p.main.Rate.Interval
					before = say("wait for %s, in which every call fails, so that nothing is in use; then ", word(wait.String()))
				}
			}
			then := say("; then %s", p.healing(st))
			if p.main.Problem != nil { // which is a finding of its own, and heal would end with an error
				then = Text{}
			} else if c := p.healable(); c.String() != "" {
				when = say("%s, and %s", when, c)
			}
			fix := say("give one of the two another name; if %s: %s%s%s", when, before, move, then).after(wait).only(when)
			if i == 0 {
				when = say("%s, and N and D stand for the limiter's rate", when)
				if set, _ := p.setRate(nil, move); len(set.runs) == 0 {
					fix = word("give one of the two another name")
				} else {
					fix = say("give one of the two another name; if %s: %s", when, set.only(when))
				}
			}
			if i < 2 && strange(st) { // what would follow reclaims members of that other program
				fix = word("give one of the two another name")
			}
			list = append(list, p.of(st, "wrong-type", Critical, fix, "%q is a %s, not a %s", key, typ, want))
		}
	}
	return list
}

// holders reports whether there may be permits in use of all clients together, and of single ones, for a hash that is broken. If
// it says what the type is, only grants tell otherwise: somebody may have changed it. If it does not, every key counts, for what
// it holds may be broken, or be something else.
func (p *patient) holders() (overall, perClient bool) {
	typ, there := p.main.Fields["type"], (*survey.State).MembersShow
	if typ != "0" && typ != "1" {
		if p.partial {
			return true, true
		}
		there = func(st *survey.State) bool { return st.Types[1] != "none" || st.Types[2] != "none" }
	}
	return typ == "0" || there(p.main), typ == "1" || p.hidden || p.more || slices.ContainsFunc(p.clients, there)
}

// asType returns the advice of a type, or of both if it cannot be told which of the two the limiter has: with the wrong one all
// permits would be free.
func (p *patient) asType(advice func(typ permit.Type) Text) Text {
	overall, perClient := p.holders()
	switch {
	case overall && perClient:
		all, each := word("all clients share the permits"), word("each client has its own permits")
		return say("if %s: %s; if %s: %s", all, advice(permit.Overall).only(all), each, advice(permit.PerClient).only(each))
	case perClient:
		return advice(permit.PerClient)
	}
	return advice(permit.Overall)
}

// setRate returns the command that makes a limiter of what is there, with the permits in use kept, after those before it. It has what
// the fields say, as far as that is sound. It reports whether somebody who knows the rate has to fill in N and D for the rest.
func (p *patient) setRate(fields map[string]string, before ...Cmd) (fix Text, unknown bool) {
	permits, interval, length := "--permits N", "--interval D", time.Duration(0)
	if n := redisson.Instant(fields["rate"]); n >= 1 && n < 1<<32 { // set-rate takes no more
		permits = fmt.Sprintf("--permits %.0f", n)
	}
	if n := redisson.Instant(fields["interval"]); n >= 1 && n < 1<<43 {
		length = time.Duration(n) * time.Millisecond
		interval = "--interval " + length.String()
	}
	var keep time.Duration
	if n := redisson.Instant(fields["keepAliveTime"]); n >= 1 && n < 1<<43 { // set-rate takes none that is shorter than the interval
		keep = max(time.Duration(n)*time.Millisecond, length)
	}
	if moved := len(before) > 0; p.refused(permit.Overall, moved) && p.refused(permit.PerClient, moved) {
		return p.who(p.main), false
	}
	fix = p.asType(func(typ permit.Type) Text {
		if p.refused(typ, len(before) > 0) {
			return p.who(p.main)
		}
		flags := []string{permits, interval, "--type " + strings.ToLower(typ.String())}
		if keep > 0 {
			flags = append(flags, "--keep-alive "+keep.String())
		}
		if typ == permit.PerClient && !p.main.GrantsShow() && len(p.clients) > 0 {
			flags = append(flags, Flag("--client", p.clients[0].ClientID))
		}
		commands := slices.Clone(before)
		if was := fields["type"]; was != "" && was != strconv.Itoa(int(typ)) { // from one type to another set-rate forgets the permits in use
			commands = append(commands, p.hset("type", strconv.Itoa(int(typ))))
		}
		return run(append(commands, p.rrl("set-rate", append(flags, "--write")...))...)
	})
	if givesTTL(keep, p.main) {
		fix = fix.onlyIf(renewed)
	}
	return fix, strings.HasSuffix(permits, " N") || strings.HasSuffix(interval, " D")
}

// refused reports whether set-rate would take what is there, once the hash was moved away if moved is true, for another program's: see
// [survey.Survey.Writable].
func (p *patient) refused(typ permit.Type, moved bool) bool {
	for i, typ := range p.main.Types[1:] {
		if typ != "none" && typ != survey.KeyTypes[i+1] {
			return true
		}
	}
	hash, grants := !moved && p.main.HashShows(), p.main.GrantsShow()
	if !hash && !grants && (p.main.HasValue || p.main.Count > 0) {
		return true
	}
	client := typ == permit.PerClient && len(p.clients) > 0 && p.clients[0].GrantsShow()
	return !moved && p.main.Types[0] != "none" && !hash && !grants && !client
}

// settingRate returns what setRate does as all that is to be done, unless that would reclaim members of another program.
func (p *patient) settingRate(fields map[string]string) Text {
	switch {
	case p.foreign(): // set-rate would end with an error
		return word("give one of the two another name")
	case strange(p.main):
		return p.who(p.main)
	}
	fix, unknown := p.setRate(fields)
	if unknown {
		return fix.onlyIf(word("N and D stand for the limiter's rate"))
	}
	return fix
}

// settingType returns what gives the hash a type that is one.
func (p *patient) settingType() Text {
	return p.asType(func(typ permit.Type) Text { return p.setting("type", strconv.Itoa(int(typ))) })
}

// setting returns what gives the only field of the hash that is wrong its value, and then heals the permits that do not add up, which
// nobody can tell before: they are as in the finding of their own that they would be.
func (p *patient) setting(field, value string) Text {
	fields := maps.Clone(p.main.Fields)
	fields[field] = value
	rate, problem := redisson.ParseRate(fields)
	mended := *p
	mended.clients = nil
	mend := func(st *survey.State) *survey.State {
		of := *st
		of.Fields, of.Rate, of.Problem = fields, rate, problem
		return &of
	}
	mended.main = mend(p.main)
	if problem == nil && rate.Type == permit.PerClient {
		for _, st := range append(slices.Clone(p.clients), p.grants...) {
			mended.clients = append(mended.clients, mend(st))
		}
	}
	commands := []Cmd{p.hset(field, value)}
	for _, f := range mended.balance() {
		commands = append(commands, f.Commands...)
	}
	return run(commands[:min(1+manyKeys, len(commands))]...)
}

// setField gives a field of a hash a value if it, and the rate, are still what was seen, or have that SHA-1: with another type the permits
// in use would be forgotten of a limiter that somebody has repaired meanwhile. Without ARGV[4] there was no such field.
const setField = `local function is(f, w) local v = redis.call("hget", KEYS[1], f) or nil return v == w or v and redis.sha1hex(v) == w end if redis.call("exists", KEYS[1]) == 1 and is("rate", ARGV[3] ~= "" and ARGV[3] or nil) and is(ARGV[1], ARGV[4]) then return redis.call("hset", KEYS[1], ARGV[1], ARGV[2]) end`

// hset returns the command that gives a field of the hash a value.
func (p *patient) hset(field, value string) Cmd {
	seen := func(field string) string {
		was := p.main.Fields[field]
		if ShellQuote(was) == NoCommand {
			return fmt.Sprintf("%x", sha1.Sum([]byte(was)))
		}
		return was
	}
	words := []string{"eval", setField, "1", p.name, field, value, seen("rate")}
	if _, ok := p.main.Fields[field]; ok {
		words = append(words, seen(field))
	}
	return p.cli(words...)
}

// noKeepAlive returns the end of a keep-alive that is none.
func (p *patient) noKeepAlive() Text {
	fix := run(p.hset("keepAliveTime", "0"))
	if p.main.Problem != nil { // which may hide more
		fix = p.setting("keepAliveTime", "0")
	}
	if overall, perClient := p.holders(); overall && perClient { // no call would be rejected for the permits of the other type
		return fix.onlyIf(say("type %s is meant", p.main.Fields["type"]))
	}
	return fix
}

// sickKeepAlive reports whether the hash has a keep-alive that is no number. For Go it is none, and Redisson fails.
func (p *patient) sickKeepAlive() bool {
	keep, ok := p.main.Fields["keepAliveTime"]
	return ok && !redisson.IsNumber(keep)
}

// malformed finds a hash that is not that of a limiter: its fields are wrong, or missing.
func (p *patient) malformed() []Finding {
	if p.main.Types[0] != "hash" {
		return nil
	}
	fields := p.main.Fields
	if p.main.Problem == nil {
		if !p.sickKeepAlive() || p.foreign() {
			return nil
		}
		f := p.of(p.main, "malformed", Critical, p.noKeepAlive(), "%s is %s", "keepAliveTime", strconv.Quote(shorten(fields["keepAliveTime"])))
		f.Java = `from 3.38.0 on every acquire fails with "attempt to compare number with nil", and takes its permits`
		f.Go = "it counts as no keep-alive"
		return []Finding{f}
	}
	if !errors.Is(p.main.Problem, permit.ErrNotInitialized) {
		text := strings.TrimPrefix(p.main.Problem.Error(), permit.ErrMalformed.Error()+": ")
		fix := p.settingRate(fields)
		switch {
		case strings.HasPrefix(text, "type"): // with another type set-rate would forget the permits in use
			fix = p.settingType()
		case strings.HasPrefix(text, "keepAliveTime"):
			fix = p.noKeepAlive()
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
	fix := p.settingRate(fields)
	if typ, ok := fields["type"]; ok && typ != "0" && typ != "1" {
		fix = p.settingType()
	}
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
		if st.Problem != nil || p.main.Problem != nil || st.WrongType() != nil {
			continue // what is in use is not known
		}
		rate := st.Rate.Permits
		value, ok := st.ValueNumber()
		sum, expired, whole := st.Sum()
		switch {
		case strange(st): // nobody knows how many permits those members are, and it is a finding of its own
		case st.HasValue && !ok:
			list = append(list, p.of(st, "value", Critical, p.heal(st), "the value is %q", shorten(st.Value)))
		case !whole:
		case !st.HasValue && sum > expired:
			list = append(list, p.of(st, "value", Critical, p.heal(st), "there is no value, with %d of %s in use", sum-expired, Counted(rate, "permit")))
		case !st.HasValue:
		case value+expired < rate && sum == expired:
			s := Warning
			if value+expired < 1 {
				s = Critical
			}
			list = append(list, p.of(st, "stuck", s, p.heal(st), "%d of %s left, and none in use", value+expired, Counted(rate, "permit")))
		case value+sum < rate:
			list = append(list, p.of(st, "lost", Warning, p.heal(st), "%d left and %d in the set make %s, %d less than the rate of %d",
				value, sum, Counted(value+sum, "permit"), rate-value-sum, rate))
		case value+sum > rate:
			list = append(list, p.of(st, "surplus", Warning, p.heal(st), "%d left and %d in the set make %s, %d more than the rate of %d",
				value, sum, Counted(value+sum, "permit"), value+sum-rate, rate))
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

// who returns what is to be done about members that no limiter writes; without any, about the value, or the hash.
func (p *patient) who(st *survey.State) Text {
	key := st.Keys[2]
	for i := 1; i >= 0 && st.Types[i+1] == "none"; i-- {
		key = st.Keys[i]
	}
	return say("find out who writes to %q; %s shows the bytes", key, showing(p.rrl("inspect", "--members")))
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
			if y == wire.LayoutUnknown {
				parts = append(parts, say("%d of a layout that no known version writes", count[y]))
				continue
			}
			parts = append(parts, say("%d of %s (%s)", count[y], word(y.String()), word(y.Writers())))
		}
		if readers != "" {
			continue
		}
		when := word("for an interval all Java services have had versions of one group, and Go has written its format")
		fix := say("bring all Java services to one group of versions, and Go to its format; an interval later %s", p.healing(st)).only(when)
		switch {
		case p.main.Problem != nil: // heal would end with an error; that is a finding of its own
			fix = word("bring all Java services to one group of versions, and Go to its format")
		case slices.Contains(layouts, wire.LayoutUnknown):
			fix = p.who(st)
		}
		list = append(list, p.of(st, "layouts", Critical, fix, "%s", Listed(", ", parts)))
	}
	return list
}

// longLength finds members of the versions that cannot read what Go writes by default. It is a warning if the hash shows that
// somebody else uses the limiter; if the set does, layouts has found it.
func (p *patient) longLength() []Finding {
	n := 0
	for _, st := range p.states() {
		for _, m := range st.Members {
			switch m.Layout() {
			case wire.LayoutLc0I:
				n++
			case wire.LayoutFI, wire.LayoutBc0IShort, wire.LayoutBc0ILong, wire.LayoutOurs:
				return nil
			}
		}
	}
	if n == 0 {
		return nil
	}
	s := Info
	for _, field := range []string{"keepAliveTime", "minGap", "coolDown"} {
		if _, ok := p.main.Fields[field]; ok {
			s = Warning
		}
	}
	return []Finding{p.of(p.main, "unshared-layout", s, word("a later Redisson, or WithRedisson316 in every Go program that uses the limiter"),
		"%s by %s", Counted(n, "member"), word(wire.LayoutLc0I.Writers()))}
}

func (p *patient) twins() []Finding {
	if p.twin == "" || errors.Is(p.main.Problem, permit.ErrNotInitialized) && !p.main.HashShows() {
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

// sameTTL gives keys the TTL that the hash has at that moment, or none if it has none. If the hash is gone, it changes nothing.
const sameTTL = `local t = redis.call("pttl", KEYS[1]) for i = 2, #KEYS do if t >= 0 then redis.call("pexpire", KEYS[i], t) elseif t == -1 then redis.call("persist", KEYS[i]) end end`

// expiring returns the command that makes the value and the permits of a state live as long as the hash, as every call of a
// peer that knows the rule does. What the TTL is when it is run counts: another command may have changed it.
func (p *patient) expiring(st *survey.State) Text {
	return run(p.cli("eval", sameTTL, "3", p.name, st.Keys[1], st.Keys[2]))
}

// noTTL says why a limiter must not be given a TTL, or nothing if all who have written what is there renew it: Go, and Redisson 3.38.0 or
// later. The hash has a keepAliveTime since then. The members of Redisson 3.21.0 and later do not show which version it is. Somebody of
// whom nothing is left may use it all the same, so there is always a condition: see renewed.
func noTTL(main *survey.State, states ...*survey.State) Text {
	if _, ok := main.Fields["keepAliveTime"]; !ok {
		return word("its hash is of Redisson before 3.38.0, which never renews a TTL, so that the limiter would expire while it is used")
	}
	byGo, hidden := false, false
	for _, st := range states {
		hidden = hidden || !st.Whole
		for _, m := range st.Members {
			switch mark := m.Mark(); {
			case m.Layout() != wire.LayoutOurs || mark == 't':
				return say("who uses it may be Redisson before 3.38.0, which never renews a TTL: there are members by %s", word(m.Writers()))
			case mark == 0:
				byGo = true
			case mark != 'w': // a block of a cool-down, whosever grants are in it
				hidden = true
			}
		}
	}
	if !byGo || hidden {
		return word("who uses it is not known: it may be Redisson before 3.38.0, which never renews a TTL")
	}
	return Text{}
}

// renewed is the condition on which a limiter may be given a TTL.
var renewed = word("only Go and Redisson 3.38.0 or later use the limiter, which renew a TTL")

// givesTTL reports whether a keep-alive gives a limiter a TTL that it does not have.
func givesTTL(keep time.Duration, l *survey.State) bool {
	return keep > 0 && (l.Rate.KeepAlive == 0 || l.TTLs[0] < 0)
}

// ConditionOf returns the condition on which a limiter may be given a rate: the permits in use would not stay in use, or keys get a TTL.
func ConditionOf(want permit.Rate, l *survey.State) Text {
	var when Text
	if givesTTL(want.KeepAlive, l) {
		when = renewed
	}
	if l.Fields["type"] == strconv.Itoa(int(want.Type)) {
		return when
	}
	forgotten := word("the permits in use may be forgotten, as they are with another type")
	if when.String() == "" {
		return forgotten
	}
	return say("%s, and %s", forgotten, when)
}

// keeping returns what makes a limiter last that expires while it is in use: a keep-alive of an interval, or more if it has more, which
// keeps all keys until nothing is in use any more, and lets them go when nobody calls. Where somebody uses it who would not renew that,
// it is the end of all TTLs, if the limiter is to stay.
func (p *patient) keeping(st *survey.State) Text {
	if p.more { // those whose keys are not known would expire all the same, and one may be of a Redisson that never renews a TTL
		return say("look at all of its clients first: %s", showing(p.rrl("doctor", "--max-clients N")))
	}
	why := noTTL(p.main, p.states()...)
	var commands []Cmd
	if p.main.Rate.KeepAlive > 0 { // which Go and later versions go on to set
		commands = append(commands, p.rrl("set-rate", "--keep-alive 0s", "--write"))
	}
	commands = append(commands, p.cli("persist", p.name))
	for _, st := range p.states() {
		for i, key := range st.Keys[1:] {
			if !strange(st) && st.Types[i+1] == survey.KeyTypes[i+1] {
				commands = append(commands, p.cli("persist", key))
			}
		}
	}
	stays := word("the limiter is to stay")
	if why.String() != "" {
		return say("if %s: %s; no keep-alive is advised: %s", stays, run(commands...).only(stays), why)
	}
	flags := []string{"--keep-alive " + max(p.main.Rate.Interval, p.main.Rate.KeepAlive).String()}
	if st.ClientID != "" {
		flags = append(flags, Flag("--client", st.ClientID))
	}
	return say("if %s: %s; if %s: %s", renewed, run(p.rrl("set-rate", append(flags, "--write")...)).only(renewed), stays, run(commands...).only(stays))
}

// shortKeepAlive reports whether the limiter can expire while its permits are in use, as Redisson lets it.
func (p *patient) shortKeepAlive() bool {
	r := p.main.Rate
	return r.KeepAlive > 0 && r.KeepAlive < r.Interval
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
			used, not := word("the limiter is still used, and N and D stand for its rate"), word("nobody uses it any more, and an interval has passed since the last grant")
			gone := run(p.cli("unlink", st.Keys[1], st.Keys[2])).only(not)
			set, _ := p.setRate(nil)
			fix := say("if %s: %s, which keeps the permits in use; if %s: %s", used, set.only(used), not, gone)
			if len(set.runs) == 0 {
				fix = say("%s; if %s: %s", set, not, gone)
			}
			list = append(list, p.of(st, "remains", s, fix, "there is no hash %q; what is left has %s %s", p.name, Counted(st.Count, "member"), when))
		}
		return list
	}
	if p.main.Problem != nil {
		return nil
	}
	if p.shortKeepAlive() && !p.reachesOthers() {
		list = append(list, p.of(p.main, "ttl", Warning, p.keeping(p.main), "the keep-alive of %v is shorter than the interval of %v", p.main.Rate.KeepAlive, p.main.Rate.Interval))
	}
	for _, st := range p.states() {
		left, hash := busy(st), p.main.TTLs[0]
		if st.WrongType() != nil || strange(st) {
			continue // one of the keys is another program's
		}
		switch {
		case left > 0 && hash >= 0 && hash+time.Second < left:
			list = append(list, p.of(st, "ttl", Warning, p.keeping(st),
				"the limiter expires in %v, but permits are in use for %v", hash.Round(time.Millisecond), left.Round(time.Millisecond)))
		case left > 0 && st.TTLs[2] >= 0 && st.TTLs[2]+time.Second < left:
			list = append(list, p.of(st, "ttl", Warning, p.expiring(st),
				"the grants expire in %v, but permits are in use for %v", st.TTLs[2].Round(time.Millisecond), left.Round(time.Millisecond)))
		case left > 0 && st.HasValue && st.TTLs[1] >= 0 && st.TTLs[1]+time.Second < left:
			list = append(list, p.of(st, "ttl", Warning, p.expiring(st),
				"the value expires in %v, but permits are in use for %v", st.TTLs[1].Round(time.Millisecond), left.Round(time.Millisecond)))
		case hash >= 0 && st.HasValue && st.TTLs[1] == -1 && st.TTLs[2] < 0:
			list = append(list, p.of(st, "ttl", Warning, p.keeping(st),
				"the hash expires in %v, and its permits do not: the limiter is gone then, unless a caller renews it", hash.Round(time.Second)))
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
			list = append(list, p.of(p.main, "other-type", Warning, p.unused(p.unlinking([]*survey.State{p.main}), p.main),
				"the limiter is PER_CLIENT, and keys of an OVERALL one with %s are left", Counted(p.main.Count, "member")))
		}
		return list
	}
	if len(p.clients) > 0 {
		list = append(list, p.of(p.main, "other-type", Warning, p.unused(p.unlinking(p.clients), p.clients...),
			"the limiter is OVERALL, and keys of %s%s of a PER_CLIENT one are left", p.atLeast(), Counted(len(p.clients), "client")))
	}
	return list
}

// unused returns fix as what is to be done once none of the permits of those states are in use: somebody may change the type
// back.
func (p *patient) unused(fix Text, states ...*survey.State) Text {
	var left time.Duration
	for _, st := range states {
		left = max(left, busy(st))
	}
	if left == 0 {
		return fix
	}
	left = left.Round(time.Millisecond) + time.Millisecond
	return say("after %v: %s", left, fix.after(left))
}

// manyKeys is of how many clients the keys are named in a command. A terminal cuts lines after 4096 bytes.
const manyKeys = 10

// unlinkUnused deletes the keys of states, a value and a set each, if type and interval of the limiter are still what was seen, and of
// each state the value, how many members there are and the score of the newest: somebody may have come back, or the keys be somebody else's.
const unlinkUnused = `local n = 0 if redis.call("hget", KEYS[1], "type") == ARGV[1] and redis.call("hget", KEYS[1], "interval") == ARGV[2] then for i = 2, #KEYS, 2 do local a, m = 3 * i / 2, redis.pcall("zrange", KEYS[i + 1], -1, -1, "withscores") if (redis.pcall("get", KEYS[i]) or "") == ARGV[a] and tostring(redis.pcall("zcard", KEYS[i + 1])) == ARGV[a + 1] and (m[2] or "") == ARGV[a + 2] then n = n + redis.call("unlink", KEYS[i], KEYS[i + 1]) end end end return n`

// unlinking returns the command that deletes the keys of states that nobody uses.
func (p *patient) unlinking(clients []*survey.State) Text {
	keys, seen := []string{p.name}, []string{p.main.Fields["type"], p.main.Fields["interval"]}
	for _, st := range clients[:min(manyKeys, len(clients))] {
		newest := ""
		if n := len(st.Members); n > 0 {
			newest = strconv.FormatFloat(st.Members[n-1].Score, 'f', -1, 64)
		}
		keys, seen = append(keys, st.Keys[1], st.Keys[2]), append(seen, st.Value, strconv.FormatInt(st.Count, 10), newest)
	}
	words := append([]string{"eval", unlinkUnused, strconv.Itoa(len(keys))}, keys...)
	fix := run(p.cli(append(words, seen...)...))
	if n := len(clients) - manyKeys; n > 0 {
		fix = say("%s; then %s, for the other %d", fix, showing(p.rrl("doctor")), n)
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
		if st.WrongType() != nil || strange(st) {
			continue // it is another program's
		}
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
		"%s%d of %s: no acquire for an hour or more, and no TTL of their keys; one is %s", p.atLeast(), len(dead), Counted(len(p.clients), "client"), st.ClientID)
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
			list = append(list, p.of(st, "huge-set", Info, say("one call of Go for each 512 of them, before Java's next one: %s shows how many are left", showing(p.rrl("watch"))),
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
		list = append(list, p.of(p.main, "clients", Info, showing(p.rrl("doctor", "--max-clients N")), "looked at only %s", Counted(len(p.clients), "client")))
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
