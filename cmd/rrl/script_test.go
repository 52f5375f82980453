// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// scripted runs the commands of all findings as a script does that knows nothing of the services: those to be run at once, in
// the order of the findings or against it, without those that have a condition or a wait.
func (b *sickbed) scripted(backwards bool) {
	b.Helper()
	list := b.findings()
	if backwards {
		slices.Reverse(list)
	}
	for _, f := range list {
		for _, c := range f.Commands {
			require.NotContains(b, c, " N ", "somebody has to fill it in")
			require.NotContains(b, c, " D ", "somebody has to fill it in")
		}
		b.script(f.Commands, false)
	}
}

// asks has somebody ask for more permits than the rate has, after a service has started, and returns how many are in use then.
func (b *sickbed) asks(who string) (granted int64) {
	b.Helper()
	l, end := b.limiter()
	defer end()
	rate := ratelimiter.Rate{Permits: 10, Interval: time.Hour}
	if b.client != "" {
		rate.Type = ratelimiter.PerClient
	}
	_, _ = l.TrySetRate(b.Context(), rate) // it fails if a key is of another type
	granted = b.inUse
	for range 12 {
		var ok bool
		if who == "Go" {
			r, err := l.Allow(b.Context(), 1)
			ok = err == nil && r.Granted
		} else {
			is, err := b.java()
			ok = err == nil && is
		}
		if ok {
			granted++
		}
	}
	return granted
}

// moreHarms are states in which what the doctor advises is not to be run at once.
func moreHarms() map[string]harm {
	list := harmsOfLimiters()
	wrong := list["wrong permits"]
	wrong.harm = func(b *sickbed) {
		b.do("del", b.key(2))
		b.do("rpush", b.key(2), "x")
	}
	list["wrong permits"] = wrong
	wrong.harm = func(b *sickbed) {
		b.do("set", b.key(1), 5)
		moreHarms()["wrong permits"].harm(b)
	}
	list["wrong permits, half of them left"] = wrong
	list["type 7, and both types are used"] = harm{func(b *sickbed) {
		for typ, k := range []redisson.Keys{redisson.NewKeys(b.name, ""), redisson.NewKeys(b.name, "5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90")} {
			if (b.client == "") != (typ == 0) {
				b.do("set", k.Value[typ], 9)
				b.do("zadd", k.Permits[typ], b.rdb.Time(b.Context()).Val().UnixMilli(), redisson.Member(false, redisson.RandomID(), 1))
			}
		}
		b.do("hset", b.name, "type", 7)
	}, "malformed", `type is "7"`, doctor.Critical}
	list["other type, in use"] = harm{func(b *sickbed) { // somebody sets the type back
		b.do("hset", b.name, "type", map[bool]int{true: 1, false: 0}[b.client == ""])
		b.all = true
	}, "other-type", "are left", doctor.Warning}
	return list
}

// TestAdviceAsAScript puts a limiter into each state that the doctor knows a command for, and into two of them at once, and runs
// the commands of its JSON one after another, as a script may that knows no more than the schema: no permit that is in
// use becomes free, and no cool-down ends.
func TestAdviceAsAScript(t *testing.T) {
	redistest.Repeats(t)
	harms := moreHarms()
	names := slices.Sorted(maps.Keys(harms))
	type pair [2]string
	var pairs []pair
	for _, a := range names {
		pairs = append(pairs, pair{a, ""})
		for _, b := range names {
			if a != b {
				pairs = append(pairs, pair{a, b})
			}
		}
	}
	rand.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	slices.SortStableFunc(pairs, func(a, b pair) int { return min(1, len(a[1])) - min(1, len(b[1])) }) // first those of one
	for _, p := range pairs[:min(len(pairs), redistest.Cases(len(names)+30, len(pairs)))] {
		of := [][2]string{{"Go", ""}, {"Java", ""}, {"Java", "5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90"}, {"Go", "5ad5e3a7-8b4a-4b0e-9c5f-3d2c7f1e6a90"}}
		if p[1] != "" {
			of = of[rand.IntN(4):][:1]
		}
		for _, of := range of {
			for _, backwards := range []bool{false, true} {
				t.Run(strings.Trim(fmt.Sprintf("%s %s %s %s backwards=%v", p[0], p[1], of[0], of[1], backwards), " "), func(t *testing.T) {
					ill := func() (b *sickbed, cooling bool) {
						b = newSickbed(t, of[1])
						b.lenient = true // one may leave no room for the other
						for _, what := range p {
							if what == "" {
								continue
							}
							h := harms[what]
							if h.check == "cool-down" && len(b.findings()) > 0 {
								t.Skip("what is broken cannot be told to cool down")
							}
							h.harm(b)
							cooling = cooling || h.check == "cool-down"
							b.all = b.all || h.check == "other-type"
							b.inUse = b.used
						}
						return b, cooling && p[1] == ""
					}
					most := int64(10) // or what is granted if nothing is run: what is lost is lost
					for _, who := range []string{"Go", "Java"} {
						without, _ := ill()
						most = max(most, without.asks(who))
					}
					b, cooling := ill()
					b.scripted(backwards)
					granted := b.asks(of[0])
					require.LessOrEqual(redistest.Final(t), granted, most, "permits in use were freed")
					if cooling {
						require.Equal(t, b.inUse, granted, "the cool-down has ended")
					}
				})
			}
		}
	}
}
