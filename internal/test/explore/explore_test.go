// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/goredisson/ratelimiter" // loads the scripts
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

const allSteps = "ask lose twice refund settle release check heal reserve die java rate cool reopen evict time all"

// several are grants of which those of p1 lie between others.
var several = [][2]int{{0, 1}, {0, 1}, {1, 2}, {0, 1}}

// isBegun reports whether an exploration begins with several grants, so that heal takes several calls, or what a reservation
// lacks is in use from the first step on.
func isBegun(steps string) bool {
	return strings.HasPrefix(steps, "heal") || strings.HasPrefix(steps, "cool")
}

// TestEveryOrder makes every order of so many steps of all kinds, and of more steps of fewer kinds: in a long run, of up to
// eight.
func TestEveryOrder(t *testing.T) {
	onlyHere(t)
	for _, c := range []struct {
		steps       string
		limiters    int
		short, long int
	}{
		{allSteps, 1, 3, 4},
		{allSteps, 2, 2, 3},
		{"ask java time", 1, 5, 8},
		{"ask lose twice time", 1, 4, 7},
		{"ask refund check time", 1, 5, 7},
		{"heal refund settle release", 1, 5, 8},
		{"heal refund settle release cool ask time", 1, 3, 5},
		{"ask reserve healer rate time", 1, 3, 6},
		{"ask reserve java die time", 1, 4, 6},
		{"ask cool rate time", 1, 4, 6},
		{"ask cool reopen refund time", 1, 4, 6},
		{"ask cool refund settle java time", 1, 4, 6},
		{"ask lose cool refund time", 1, 4, 6},
		{"cool reserve time", 1, 3, 5},
		{"ask java evict time", 1, 4, 7},
		{"ask reserve all time", 2, 3, 5},
	} {
		for _, typ := range []permit.Type{permit.Overall, permit.PerClient} {
			for rate := int64(2); rate <= 3; rate++ {
				if rate > 2 && !redistest.Long() {
					continue
				}
				depth, rate, begun := redistest.Cases(c.short, c.long), rate, [][2]int(nil)
				if isBegun(c.steps) {
					rate, begun = 6, several
				}
				t.Run(fmt.Sprintf("%v %d, %d of %s", typ, rate, c.limiters, c.steps), func(t *testing.T) {
					r := redistest.Must(Explore(Config{Type: typ, Rate: rate, Limiters: c.limiters, Begun: begun, Depth: depth, Steps: strings.Fields(c.steps)}))(t)
					require.NoError(t, r.Broken, "%v", r)
					t.Log(r)
				})
			}
		}
	}
}

func onlyHere(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "each world belongs to one goroutine")
	if redistest.Lane() != "miniredis" {
		t.Skip("redistest.NoServer: asks no server")
	}
}

// A mutation is a fault in a script, or in the keys that it gets, that the exploration has to find.
type mutation struct {
	name             string
	script, old, new string
	typ              permit.Type
	steps            string
	depth            int
	broken           string // the promise, an expression for what is told of it
}

var mutations = []mutation{
	{"a grant takes nothing from value", "acquire", "or freed - taken)", "or freed)", 0, "ask time", 4, "more than 2|the window"},
	{"a grant has no member", "acquire", "if granted > 0 and redis.call('ZADD'", "if false and redis.call('ZADD'", 0, "ask time", 3, "has no member"},
	{"a grant expires 1 ms early", "acquire", "string.format('%d', now - interval), 'LIMIT'", "string.format('%d', now - interval + 1), 'LIMIT'", 0, "ask time", 5, "has no member"},
	{"an evicted value is a new limiter", "acquire", " or not stored and redis.call('ZCARD', KEYS[3]) > 0 then", " then", 0, "ask evict time", 5, "more than 2|the window"},
	{"a replay is not looked up", "acquire_rest", "if says(ARGV[5], 'replay') then", "if false then", 0, "ask lose time", 5, "sends a call again"},
	{"a call that arrives twice takes twice", "acquire", "left = redis.call('INCRBY', KEYS[2], taken)", "", 0, "ask twice time", 4, "do not add up"},
	{"a refund gives back too much", "give_back", "math.min(back, math.max(0, rate - value))", "rate - value", 0, "ask refund time", 5, "more than 2|the window"},
	{"a refund leaves the member", "give_back", "redis.call('ZREM', KEYS[3], m)", "", 0, "ask refund time", 4, "more than 2|the window"},
	{"a place ahead does not expire", "reserve", "if e[2] > now and", "if", 0, "ask reserve die time", 5, "takes longer"},
	{"value does not fall for what is taken ahead", "reserve", "if plain and back ~= n then", "if false then", 0, "ask reserve time", 4, "more than 2|the window"},
	{"a check finds nothing", "acquire_rest", "return spent or not later and sum ~= rate", "return spent", 0, "ask evict time", 5, "do not add up"},
	{"a healer gives nothing back", "heal", "local left = rate - permits\n", "local left = value or rate - permits\n", 0, "ask evict time", 5, "do not add up"},
	{"a lower rate leaves the permits in use", "set_rate", "left = rate - used", "left = math.max(0, rate - used)", 0, "ask rate time", 4, "the window|more than|do not add up"},
	{"a sum does not know of a settled grant", "give_back", "replace(grant, score, to)",
		"if to then redis.call('ZADD', KEYS[3], score, to) end redis.call('ZREM', KEYS[3], grant)", 0, "heal refund", 5, "has no member|do not add up"},
	{"nor of one that is settled to more", "give_back", "replace(grant, score, to)",
		"if to then redis.call('ZADD', KEYS[3], score, to) end redis.call('ZREM', KEYS[3], grant)", 0, "heal settle", 5, "more than|the window"},
	{"a sum that begins anew is taken for the old one", "heal", "if begun and not from or not (lo and hi and hi - lo + 1 == members) then", "if false then", 0, "heal release", 6, "."},
	{"a healer takes what a reservation lacks for too much in use", "heal", "local left = rate - permits\n", "local left = rate - permits left = left + (left < 0 and trim(-left) or 0)\n",
		0, "ask reserve healer time", 5, "the window|has no member"},
	{"a cool-down is not obeyed", "acquire_rest", "if cooling > 0 then", "if false then", 0, "ask cool evict time", 5, "in a cool-down|the window|more than"},
	{"a lifted cool-down gives nothing back", "lift_cool_down", "freed, lifted = freed + permits_of(m), 1", "lifted = 1", 0, "ask cool time", 4, "do not add up"},
	{"a refund in a cool-down is free at once", "give_back", "gain(math.min(back, math.max(0, rate - value)), value)", "math.min(back, math.max(0, rate - value))", 0, "ask cool refund time", 4, "in a cool-down"},
	{"a refund in a cool-down is lost", "give_back", "if value and not malformed", "if till <= now and value", 0, "ask cool refund time", 4, "do not add up"},
	{"a reservation that ends in a cool-down is free at once", "reserve", "gain(math.min(back - n, rate - value), value)", "math.min(back - n, rate - value)", 0, "cool reserve time", 4, "in a cool-down"},
	{"a cool-down forgets grants for a reservation", "cool_down", "left = math.min(0, spare - over)",
		"over = over - spare for _, t in ipairs(times) do local n = math.max(0, math.min(over, sums[t])) sums[t], over = sums[t] - n, over - n end left = math.min(0, -over)", 0, "cool reserve time", 5, "are left"},
	{"clients of a PER_CLIENT limiter share who takes permits ahead", "", "", "", permit.PerClient, "ask reserve time", 5, "takes longer"},
}

// TestFaultsAreThere checks that the scripts have the text that each fault changes, also of those that a short run does not draw.
func TestFaultsAreThere(t *testing.T) {
	texts := map[string]string{"": ""}
	for _, s := range dispatch.Loaded() {
		texts[s.Name] = s.Src
	}
	for _, m := range mutations {
		require.Contains(t, texts[m.script], m.old, m.name)
	}
}

// TestEveryOrderFindsFaults checks that each fault is found; a short run draws a third of them.
func TestEveryOrderFindsFaults(t *testing.T) {
	onlyHere(t)
	for i, k := range proptest.Rand(t).Perm(len(mutations)) {
		if i >= redistest.Cases(len(mutations)/3, len(mutations)) {
			break
		}
		m := mutations[k]
		t.Run(m.name, func(t *testing.T) {
			n := 0
			cfg := Config{Type: m.typ, Rate: 2, Limiters: 1, Depth: m.depth, Steps: strings.Fields(m.steps)}
			if isBegun(m.steps) {
				cfg.Rate, cfg.Begun = 6, several
			}
			if m.script == "" {
				cfg.Rename = func(key string) string {
					if i := strings.Index(key, ":ahead:"); i > 0 {
						n++
						return key[:i+len(":ahead")]
					}
					return key
				}
			} else {
				cfg.Mutate = func(name, text string) string {
					if name == m.script {
						n += strings.Count(text, m.old)
						text = strings.ReplaceAll(text, m.old, m.new)
					}
					return text
				}
			}
			r := redistest.Must(Explore(cfg))(t)
			require.NotZero(t, n, "the fault was not put in")
			require.Error(t, r.Broken, "%v", r)
			require.Regexp(t, m.broken, r.Broken.Error(), "%v", r)
			t.Log(r)
		})
	}
}
