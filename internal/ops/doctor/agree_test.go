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
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// aDuration is how long something takes from now on.
var aDuration = regexp.MustCompile(`[0-9.hm]+s\b`)

// advice returns what is advised about the findings of some checks.
func advice(r *Report, checks ...string) (list []string) {
	for _, f := range r.Findings {
		if slices.Contains(checks, f.Check) {
			list = append(list, fmt.Sprintf("%s: %s %q then %q or %q", f.Check, aDuration.ReplaceAllString(f.Found, "D"), f.Commands, f.Then, f.Alternatives))
		}
	}
	return list
}

// TestBothLooksAgree has limiters whose hash is broken, and clients whose keys show more or less of a limiter. Whoever looks at all
// limiters is advised the same as who looks at that one: a look that misses the clients would name the type of which nothing is in use.
func TestBothLooksAgree(t *testing.T) {
	const id = ":" + redisson1
	hashes := map[string][]act{
		"type 7":                  {rate(7)},
		"no type":                 {rate(0), unset("type")},
		"no type, no keep-alive":  {rate(0), unset("type"), unset("keepAliveTime")},
		"no interval":             {rate(0), unset("interval")},
		"no interval, PER_CLIENT": {rate(1), unset("interval")},
		"a sick keep-alive":       {rate(0), hash("keepAliveTime", "1.5")},
		"a keep-alive of letters": {rate(0), hash("keepAliveTime", "abc")},
		"a list":                  {func(w *ward) { w.do(redisDo("rpush", w.name, "x")) }},
		"no hash":                 {},
		"OVERALL":                 {rate(0)},
		"PER_CLIENT, a field":     {rate(1), hash("team", "a")},
	}
	for _, field := range []string{"rate", "interval", "type", "keepAliveTime"} {
		for what, a := range map[string]act{"no": unset(field), "abc as": hash(field, "abc"), "-1.5 as": hash(field, "-1.5")} {
			hashes["another's field, "+what+" "+field] = []act{rate(1), hash("team", "a"), a}
		}
	}
	states := map[string][]act{
		"a client without a value":     {grantOf(id, 5, time.Second)},
		"a client with a sick value":   {grantOf(id, 5, time.Second), valueOf(id, "1.5")},
		"a client without a set":       {valueOf(id, 5)},
		"a name that no client draws":  {grantOf(":a", 5, time.Second)},
		"a whole client":               {grantOf(id, 5, time.Second), valueOf(id, 5)},
		"somebody else's":              {valueOf(":profile", "hello")},
		"a client that is a list":      {grantOf(id, 5, time.Second), func(w *ward) { w.do(redisDo("rpush", w.key("value")+id, "x")) }},
		"both types, one half of it":   {grantOf(id, 5, time.Second), grant(1, time.Second), value(9)},
		"a client with a surplus":      {grantOf(id, 5, time.Second), valueOf(id, 500)},
		"a client whose clock is fast": {grantOf(id, 5, -time.Minute), valueOf(id, 5)},
		"a client that expires":        {grantOf(id, 5, time.Second), valueOf(id, 5), expire("permits"+id, time.Second)},
	}
	for name, h := range hashes {
		for state, s := range states {
			for _, braces := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, braces=%v", name, state, braces), func(t *testing.T) {
					w := newWard(t)
					if braces {
						w.name = "{" + w.name + "}"
					}
					w.do(h...)
					w.do(s...)
					if name != "no hash" || !braces { // which of the two names it was is not known
						w.looksAgree()
					}
				})
			}
		}
	}
}

// looksAgree checks that both looks advise the same, as far as what both look for goes.
func (w *ward) looksAgree() {
	w.Helper()
	checks := []string{"malformed", "wrong-type", "remains", "value", "stuck", "lost", "surplus", "clock", "ttl", "layouts"}
	one, err := (&Doctor{Survey: survey.New(w.rdb)}).Limiter(w.ctx, w.name)
	all := redistest.Must((&Doctor{Survey: survey.New(w.rdb)}).All(w.ctx, survey.Query{Match: redisson.EscapePattern(w.name)}, 10, nil))(w)
	if err != nil {
		require.Empty(w, all.Findings)
		return
	}
	// Nothing shows that a name without a limiter's data is meant to be one, so only who types it hears of it.
	if len(all.Findings) == 0 && !slices.ContainsFunc(one.Findings, func(f Finding) bool { return len(f.Commands)+len(f.Alternatives) > 0 }) {
		return
	}
	require.Equal(w, advice(one, checks...), advice(all, checks...))
}

// TestSurveyKeepsWhatIsInUse has a PER_CLIENT limiter whose type is none, and a client whose value is lost. The type that a script
// sets is the one of the permits in use, or it sets none.
func TestSurveyKeepsWhatIsInUse(t *testing.T) {
	for what, v := range map[string]act{"no value": func(*ward) {}, "no number": valueOf(":"+redisson1, "1.5")} {
		t.Run(what, func(t *testing.T) {
			w := newWard(t)
			w.do(hash("rate", 5, "interval", 60_000, "keepAliveTime", 0, "type", 7), v)
			for range 5 {
				w.do(grantOf(":"+redisson1, 1, time.Second))
			}
			all := func() []Finding {
				d := &Doctor{Survey: survey.New(w.rdb)}
				return redistest.Must(d.All(w.ctx, survey.Query{Match: w.name}, 10, nil))(t).Findings
			}
			list := all()
			require.Len(t, list, 1)
			require.Equal(t, "malformed", list[0].Check)
			require.Contains(t, list[0].Commands[0], "type 1")
			w.do(unset("type"))
			list = all()
			require.Len(t, list, 1)
			require.Equal(t, "malformed", list[0].Check)
			require.True(t, len(list[0].Commands) == 1 && strings.Contains(string(list[0].Commands[0]), "--type per_client"), "%+v", list[0])
		})
	}
}

// TestExamineNamesNoType has a state alone of a limiter whose type is none, or missing. Those whose permits were not read may have some
// in use, so no command names a type.
func TestExamineNamesNoType(t *testing.T) {
	const id = ":" + redisson1
	for name, list := range map[string][]act{
		"type 7":  {rate(7)},
		"no type": {rate(0), unset("type")},
	} {
		for _, client := range []string{"", redisson1} {
			t.Run(name+" "+client, func(t *testing.T) {
				w := newWard(t)
				w.do(list...)
				w.do(value(9), grant(1, 0), valueOf(id, 9), grantOf(id, 1, 0))
				found := Examine(Target{}, redistest.Must(survey.New(w.rdb).Read(w.ctx, w.name, client))(t))
				require.Equal(t, "malformed", found[0].Check)
				require.Empty(t, found[0].Commands)
				require.Len(t, found[0].Alternatives, 2)
			})
		}
	}
}

// TestClientsThatWereNotLookedAt has more limiters with clients than are looked at. The clients of the others are not known, which is
// not that there are none.
func TestClientsThatWereNotLookedAt(t *testing.T) {
	w := newWard(t)
	base := w.name
	for i := range 3 {
		w.name = fmt.Sprint(base, i)
		w.do(rate(7), valueOf(":"+redisson1, 9), grantOf(":"+redisson1, 1, 0))
	}
	known := redistest.Must(survey.New(w.rdb).ClientIDs(w.ctx, survey.Query{Match: base + "*"}, 9, 2))(t)
	found, unknown := 0, 0
	for i := range 3 {
		if ids, unsure := known.Of(fmt.Sprint(base, i)); unsure {
			require.Empty(t, ids)
			unknown++
		} else {
			require.Equal(t, []string{redisson1}, ids)
			found++
		}
	}
	require.Equal(t, 2, found)
	require.Equal(t, 1, unknown)
}
