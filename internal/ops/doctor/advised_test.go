// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/stretchr/testify/require"
)

// aList makes the key of a suffix a list.
func aList(suffix string) act {
	return func(w *ward) { w.do(redisKey("del", suffix), redisDo("rpush", w.key(suffix), "x")) }
}

// TestHealBesideRedisson316 has members of Redisson 3.16.4 to 3.16.8, which cannot read what heal writes. No heal is advised without saying so.
func TestHealBesideRedisson316(t *testing.T) {
	of := func(permits byte, age time.Duration) act { return member("", java(permits)[wire.LayoutLc0I], age) }
	for name, c := range map[string]struct {
		acts  []act
		check string
	}{
		"no value":        {[]act{of(3, 0)}, "value"},
		"no number":       {[]act{of(3, 0), value("many")}, "value"},
		"stuck":           {[]act{of(3, 2*time.Hour), value(4)}, "stuck"},
		"lost":            {[]act{of(3, 0), value(5)}, "lost"},
		"surplus":         {[]act{of(3, 0), value(9)}, "surplus"},
		"value is a list": {[]act{of(3, 0), aList("value")}, "wrong-type"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(append(c.acts, rate(0), unset("keepAliveTime"))...)
			list := w.findings("")
			require.Len(t, list, 1)
			f := list[0]
			require.Equal(t, c.check, f.Check)
			require.Empty(t, f.Commands)
			require.Empty(t, f.Then)
			require.Len(t, f.Alternatives, 1)
			require.Contains(t, f.Alternatives[0].If, "no Redisson 3.16.4 to 3.16.8 uses the limiter")
			require.Equal(t, c.check == "wrong-type", strings.Contains(f.Alternatives[0].If, "the other program"))
			require.Contains(t, fmt.Sprint(f.Alternatives[0].Commands), "rrl heal "+w.name)
		})
	}
}

// TestSharedKeysFirst has two limiters that have the same keys: nothing else that is wrong with one of them can be mended without harm to the
// other, and permits are those of a limiter that is there.
func TestSharedKeysFirst(t *testing.T) {
	for name, c := range map[string]struct {
		typ   int
		acts  []act
		check string
	}{
		"lost":               {0, []act{value(5), grant(1, 0)}, "lost"},
		"a client's lost":    {1, []act{valueOf(":"+redisson1, 5), grantOf(":"+redisson1, 1, 0)}, "lost"},
		"a gap":              {0, []act{hash("minGap", 12_000)}, "min-gap"},
		"a cool-down":        {0, []act{hash("coolDown", int64(95_600_000_000_000))}, "cool-down"},
		"type 7":             {0, []act{hash("type", 7)}, "malformed"},
		"no rate":            {0, []act{unset("rate")}, "malformed"},
		"a keep-alive":       {0, []act{hash("keepAliveTime", 1000)}, "ttl"},
		"another type":       {1, []act{value(9), grant(1, 0)}, "other-type"},
		"a dead client":      {1, []act{valueOf(":a", 9), grantOf(":a", 1, 3*time.Hour)}, "dead-clients"},
		"a rate of a config": {0, nil, "drift"},
	} {
		for _, braces := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, braces=%v", name, braces), func(t *testing.T) {
				w := newWard(t)
				names := []string{w.name, "{" + w.name + "}"}
				if braces {
					slices.Reverse(names)
				}
				d := &Doctor{Survey: survey.New(w.rdb), Drift: func(st *survey.State) (string, permit.Rate, Cmd) {
					return map[bool]string{true: "another rate"}[c.check == "drift"], st.Rate, "rrl set-rate x"
				}}
				w.name = names[1]
				w.do(rate(c.typ))
				_, err := d.Limiter(w.ctx, names[0])
				require.ErrorContains(t, err, fmt.Sprintf("there is no limiter %q", names[0]))
				w.name = names[0]
				w.do(rate(c.typ))
				w.do(c.acts...)
				fixes := map[string]string{}
				for _, f := range redistest.Must(d.Limiter(w.ctx, w.name))(t).Findings {
					fixes[f.Check] = f.Fix
					require.Empty(t, len(f.Commands)+len(f.Then)+len(f.Alternatives), "%s: %s", f.Check, f.Fix)
				}
				require.Equal(t, "give one of the two another name", fixes["shared-keys"])
				require.Equal(t, "settle the finding shared-keys first", fixes[c.check])
			})
		}
	}
}

// TestKeysOfATwin has permits, and a hash of one name alone: they are of the limiter that is there, in both looks.
func TestKeysOfATwin(t *testing.T) {
	for typ, id := range []string{"", ":" + redisson1} {
		w := newWard(t)
		base := w.name
		w.name = "{" + base + "}"
		w.do(rate(typ), valueOf(id, 9), grantOf(id, 1, 0))
		d := &Doctor{Survey: survey.New(w.rdb)}
		_, err := d.Limiter(w.ctx, base)
		require.ErrorIs(t, err, permit.ErrNotInitialized)
		require.ErrorContains(t, err, fmt.Sprintf("there is no limiter %q, and its keys are those of the limiter %q", base, w.name))
		require.Empty(t, w.findings())
		r := redistest.Must(d.All(w.ctx, survey.Query{Match: "*" + redisson.EscapePattern(base) + "*"}, 10, nil))(t)
		require.Equal(t, 1, r.Limiters)
		require.Empty(t, r.Findings)
	}
}

// TestTTLOfClientsNotLookedAt has more clients than are looked at, of a limiter that expires while it is in use. The others' keys are not
// known, so that nothing is advised that would let them expire alone.
func TestTTLOfClientsNotLookedAt(t *testing.T) {
	for name, a := range map[string]act{"a hash that expires": expire("", time.Second), "a short keep-alive": hash("keepAliveTime", 1000)} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(rate(1), a)
			for i := range 4 {
				w.do(grantOf(fmt.Sprint(":", i), 1, 0), valueOf(fmt.Sprint(":", i), 9))
			}
			n := 0
			for _, f := range redistest.Must((&Doctor{Survey: survey.New(w.rdb), MaxClients: 3}).Limiter(w.ctx, w.name))(t).Findings {
				if f.Check == "ttl" {
					n++
					require.Regexp(t, "^look at all of its clients first: rrl doctor .*--max-clients N$", f.Fix)
					require.Empty(t, len(f.Commands)+len(f.Then)+len(f.Alternatives))
				}
			}
			require.Positive(t, n)
		})
	}
}

// TestClientsOfAnOverallLimiter has keys of clients beside a limiter whose clients share the permits. Nothing counts them, so that nothing is
// wrong with them but that they are there.
func TestClientsOfAnOverallLimiter(t *testing.T) {
	const id = ":" + redisson1
	for name, acts := range map[string][]act{
		"surplus": {grantOf(id, 5, 0), valueOf(id, 500)},
		"lost":    {grantOf(id, 5, 0), valueOf(id, 1)},
		"clock":   {grantOf(id, 5, -time.Hour), valueOf(id, 5)},
		"ttl":     {grantOf(id, 5, 0), valueOf(id, 5), expire("permits"+id, time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(rate(0), value(9), grant(1, 0))
			w.do(acts...)
			require.Empty(t, w.findings("ttl"))
			list := w.findings("other-type") // in the look at all limiters
			require.Len(t, list, 1)
			require.Equal(t, "other-type", list[0].Check)
		})
	}
}

// TestAdviceBesideAMalformedHash has findings whose commands end with an error until the hash is mended.
func TestAdviceBesideAMalformedHash(t *testing.T) {
	for name, c := range map[string]struct {
		acts  []act
		check string
		fix   string
	}{
		"a cool-down":        {[]act{hash("coolDown", int64(95_600_000_000_000)), value(9), grant(1, 0)}, "cool-down", "^settle the finding malformed first$"},
		"a value of another": {[]act{aList("value"), grant(1, 0)}, "wrong-type", "if the other program does not use .*renamenx"},
		"permits of another": {[]act{value(9), aList("permits")}, "wrong-type", "if the other program does not use .*renamenx"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(rate(0), hash("interval", "often"))
			w.do(c.acts...)
			list := slices.DeleteFunc(w.findings(c.check), func(f Finding) bool { return f.Check != c.check })
			require.Len(t, list, 1)
			require.Regexp(t, c.fix, list[0].Fix)
			require.NotRegexp(t, "rrl (heal|lift)", fmt.Sprint(list[0].Fix, list[0].Commands, list[0].Then, list[0].Alternatives))
		})
	}
}

// TestSetRateIsAdvisedWhereItWorks has hashes that are broken, beside keys that rrl set-rate leaves alone, with all that it says, or that it
// changes.
func TestSetRateIsAdvisedWhereItWorks(t *testing.T) {
	const id = ":" + redisson1
	noType := hash("rate", 10, "interval", 60_000)
	for name, c := range map[string]struct {
		acts []act
		fix  string // of the finding of the hash
	}{
		"a short keep-alive":                  {[]act{noType, hash("keepAliveTime", 1000), value(9), grant(1, 0)}, "rrl set-rate .*--keep-alive 1m0s"},
		"a long keep-alive":                   {[]act{noType, hash("keepAliveTime", 120_000), value(9), grant(1, 0)}, "rrl set-rate .*--keep-alive 2m0s"},
		"a keep-alive and no interval":        {[]act{rate(0), unset("interval"), hash("keepAliveTime", 1000)}, "rrl set-rate .*--interval D .*--keep-alive 1s"},
		"another's value":                     {[]act{noType, hash("team", "a"), value("hello"), grantOf(id, 1, 0), valueOf(id, 9)}, "^find out who writes to \"{NAME}:value\""},
		"another's value and set":             {[]act{noType, hash("team", "a"), value("hello"), member("", []byte("alice"), 0), grantOf(id, 1, 0), valueOf(id, 9)}, "^find out who writes to \"{NAME}:permits\""},
		"another's field, and clients":        {[]act{noType, hash("team", "a"), grantOf(id, 1, 0), valueOf(id, 9)}, "rrl set-rate .*--type per_client --client"},
		"another's field, no clients' grants": {[]act{noType, hash("team", "a"), value(9), grant(1, 0)}, "rrl set-rate .*--type overall"},
		"clients of an OVERALL one":           {[]act{rate(0), unset("rate"), hash("team", "a"), grantOf(id, 1, 0), valueOf(id, 9)}, "share the permits: find out who writes to \"NAME\".*set-rate.*per_client"},
		"a value that is a list":              {[]act{rate(0), unset("type"), aList("value")}, "^give one of the two another name$"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(c.acts...)
			list := slices.DeleteFunc(w.findings("malformed"), func(f Finding) bool { return f.Check != "malformed" })
			require.Len(t, list, 1)
			require.Regexp(t, strings.ReplaceAll(c.fix, "NAME", regexp.QuoteMeta(w.name)), list[0].Fix)
		})
	}
}

// TestCommandsForClients has PER_CLIENT limiters that only their clients show to be some, and two clients with a key that is another
// program's: each command is for what it is to change, and has a name of its own for what it moves.
func TestCommandsForClients(t *testing.T) {
	const one, two = ":" + redisson1, ":5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90"
	w := newWard(t)
	w.do(rate(1), unset("keepAliveTime"), hash("team", "a", "minGap", 12_000), grantOf(one, 2, 0), valueOf(one, 8))
	list := w.findings("min-gap")
	require.Len(t, list, 1)
	require.Contains(t, list[0].Commands[0], " --client "+redisson1)

	w = newWard(t)
	w.do(rate(1), hash("team", "a", "rate", "1e1", "keepAliveTime", 90_000), grantOf(one, 2, 0), valueOf(one, 8), expire("", 20*time.Second))
	list = w.findings("ttl")
	require.Len(t, list, 1)
	require.Equal(t, 1, strings.Count(string(list[0].Alternatives[0].Commands[0]), "--client"), "%+v", list[0].Alternatives)

	w = newWard(t)
	w.do(rate(1), grantOf(one, 2, 0), grantOf(two, 2, 0), aList("value"+one), aList("value"+two))
	moved := 0
	for _, f := range w.findings("wrong-type") {
		if f.Check == "wrong-type" {
			move := string(f.Alternatives[0].Commands[0])
			require.Contains(t, move, ":moved-string:"+f.Client)
			require.Contains(t, move, "the new name is taken")
			moved++
		}
	}
	require.Equal(t, 2, moved)

	w = newWard(t)
	w.do(hash("rate", int64(1)<<32, "interval", 60_000), value(8), grant(1, 0))
	require.Contains(t, w.findings("malformed")[0].Fix, "--permits N") // set-rate takes no more than 2^32-1
}
