// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The tests in this folder run the scripts, each row on a state of the keys that it names, and compare the reply and the state
// that the call leaves.

// instant is the instant of a call, in milliseconds since the epoch. The instants of a row are relative to it.
const instant = 1_700_000_000_000

// A state is the content of the keys of one limiter.
type state struct {
	hash    map[string]string // the field "counted" is called as the set
	value   string            // "" if absent
	members []member
	ahead   string           // who takes permits ahead; "" if absent
	other   bool             // whether there are keys of the other type
	ttls    [3]time.Duration // of the hash, value and members, 0 for none; rounded up to minutes
}

// A member is a member whose score is at milliseconds after the call.
type member struct {
	at     int64
	member string
}

// A row is one call of a script: the state before it, its arguments, its reply, and the state after it. The name of a row of
// acquire_rest begins with the number of the phase that it is about.
type row struct {
	script string
	name   string
	before state
	args   []any // without the type; now stands for the instant
	typ    string
	reply  string
	after  *state // nil if the call changes nothing
}

// keys are the keys of one row. Each row has its own.
type keys [6]string

// keysOf returns keys whose names begin with prefix.
func keysOf(prefix string) keys {
	return keys{prefix, prefix + ":v", prefix + ":p", prefix + ":a", prefix + ":o:v", prefix + ":o:p"}
}

// of returns the keys of a script.
func (k keys) of(script string) []string {
	switch script {
	case "reserve":
		return k[:4]
	case "set_rate":
		return append(k[:3:3], k[4:]...)
	case "try_set_rate", "cool_down_until", "rate":
		return k[:1]
	case "acquire_all":
		return slices.Repeat(k[:3], 6) // unused places repeat a key
	}
	return k[:3]
}

// put sets the keys to the state s, with scores relative to base.
func (k keys) put(ctx context.Context, rdb *redis.Client, s state, base int64) error {
	pipe := rdb.Pipeline()
	pipe.Del(ctx, k[:]...)
	for name, v := range s.hash {
		pipe.HSet(ctx, k[0], cmp.Or(map[string]string{"counted": k[2]}[name], name), v)
	}
	if s.value != "" {
		pipe.Set(ctx, k[1], s.value, 0)
	}
	if s.ahead != "" {
		pipe.Set(ctx, k[3], s.ahead, 0)
	}
	if s.other {
		pipe.Set(ctx, k[4], "1", 0)
		pipe.ZAdd(ctx, k[5], redis.Z{Score: float64(base), Member: java(1)})
	}
	for _, m := range s.members {
		pipe.ZAdd(ctx, k[2], redis.Z{Score: float64(base + m.at), Member: m.member})
	}
	for i, ttl := range s.ttls {
		if ttl > 0 {
			pipe.PExpire(ctx, k[i], ttl)
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// text returns the state in a form that can be compared and read.
func (s state) text() string {
	var b strings.Builder
	for _, f := range slices.Sorted(maps.Keys(s.hash)) {
		fmt.Fprintf(&b, "%s %s\n", f, s.hash[f])
	}
	fmt.Fprintf(&b, "value %q\n", s.value)
	members := slices.Clone(s.members)
	slices.SortFunc(members, func(m, n member) int {
		if m.at != n.at {
			return int(m.at/2 - n.at/2 + m.at%2 - n.at%2)
		}
		return strings.Compare(m.member, n.member)
	})
	for _, m := range members {
		fmt.Fprintf(&b, "%d %q\n", m.at, m.member)
	}
	fmt.Fprintf(&b, "ahead %q, the other type %v, TTLs %v\n", s.ahead, s.other, s.ttls)
	return b.String()
}

// get reads the keys. Scores are relative to base.
func (k keys) get(ctx context.Context, rdb *redis.Client, base int64) (state, error) {
	var s state
	pipe := rdb.Pipeline()
	fields, value, members := pipe.HGetAll(ctx, k[0]), pipe.Get(ctx, k[1]), pipe.ZRangeWithScores(ctx, k[2], 0, -1)
	ahead, others := pipe.Get(ctx, k[3]), pipe.Exists(ctx, k[4], k[5])
	var ttls [3]*redis.DurationCmd
	for i := range ttls {
		ttls[i] = pipe.PTTL(ctx, k[i])
	}
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil {
		return s, err
	}
	s.hash, s.value, s.ahead, s.other = fields.Val(), value.Val(), ahead.Val(), others.Val() > 0
	if v, ok := s.hash[k[2]]; ok {
		delete(s.hash, k[2])
		s.hash["counted"] = v
	}
	for _, z := range members.Val() {
		s.members = append(s.members, member{int64(z.Score) - base, z.Member.(string)})
	}
	for i, ttl := range ttls {
		if d := ttl.Val(); d > 0 {
			s.ttls[i] = (d + time.Minute - 1).Truncate(time.Minute)
		}
	}
	return s, nil
}

// run makes the call with src as the text of the script, or in a joint if that is empty, and returns how the outcome differs from the row.
func (row *row) run(ctx context.Context, rdb *redis.Client, src string, k keys) error {
	base, clock := int64(instant), strings.HasPrefix(row.name, "2. ")
	args := []any{row.typ}
	for _, a := range row.args {
		if a == now {
			a = base
		}
		args = append(args, a)
	}
	if clock {
		time.Sleep(999 * time.Millisecond) // so that each millisecond counts
	}
	began := rdb.Time(ctx).Val().UnixMilli()
	if err := k.put(ctx, rdb, row.before, base); err != nil {
		return err
	}
	raw, err := rdb.Eval(ctx, cmp.Or(src, "return 0"), k.of(row.script), args...).Result()
	if src == "" {
		raw, err = inJoint(ctx, rdb, row.script, k.of(row.script), args)
	}
	if err != nil {
		return err
	}
	list, ok := raw.([]any)
	if !ok {
		list = []any{raw}
	}
	if clock && len(list) > 1 {
		n, ok := list[1].(int64)
		if ended := rdb.Time(ctx).Val().UnixMilli(); !ok || n < began || n > ended {
			return fmt.Errorf("it is %v, from %d to %d", list[1], began, ended)
		}
		base = n
	}
	var reply []string
	for i, v := range list {
		if i == strings.Count(row.reply[:max(0, strings.Index(row.reply, now))], " ") && v == base {
			v = now
		}
		reply = append(reply, fmt.Sprint(v))
	}
	if got := strings.Join(reply, " "); got != row.reply {
		return fmt.Errorf("the reply is\n%s, want\n%s", got, row.reply)
	}
	want := row.after
	if want == nil {
		want = &row.before
	}
	got, err := k.get(ctx, rdb, base)
	if err != nil {
		return err
	}
	if got.text() != want.text() {
		return fmt.Errorf("the state is\n%swant\n%s", got.text(), want.text())
	}
	return nil
}

// inRedis runs f with a function that runs rows, each on keys of its own.
func inRedis(t *testing.T, f func(t *testing.T, run func(row *row, src string) error)) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name, n := redistest.Key(t), 0
		f(t, func(row *row, src string) error {
			n++
			prefix := fmt.Sprintf("{%s}:%d", name, n)
			k := keysOf(prefix)
			defer rdb.Del(t.Context(), k[:]...)
			return row.run(t.Context(), rdb, src, k)
		})
	})
}

// check runs the rows, and then each once more between two calls of a limiter whose keys have wrong types, as calls travel that
// leave together.
func check(t *testing.T, rows []row) {
	t.Helper()
	inRedis(t, func(t *testing.T, run func(row *row, src string) error) {
		for i := range rows {
			require.NoError(t, run(&rows[i], text(rows[i].script)), "%s: %s", rows[i].script, rows[i].name)
			require.NoError(t, run(&rows[i], ""), "%s in a joint: %s", rows[i].script, rows[i].name)
		}
	})
}

// inJoint makes a call in the middle of three.
func inJoint(ctx context.Context, rdb *redis.Client, script string, keys []string, args []any) (any, error) {
	wrong := make([]string, len(keys))
	for i := range keys {
		wrong[i] = keys[0] + ":wrong"
	}
	rdb.SAdd(ctx, wrong[0], "neither a hash nor a string nor a sorted set")
	defer rdb.Del(ctx, wrong[0])
	src := dispatch.Joint(text(script), len(keys), 12, len(args))
	raw, err := rdb.Eval(ctx, src, slices.Concat(wrong, keys, wrong), slices.Concat(args, args, args)...).Result()
	if err != nil {
		return nil, err
	}
	if raw == int64(0) { // another Lua
		return rdb.Eval(ctx, text(script), keys, args...).Result()
	}
	list, ok := raw.([]any)
	if !ok || len(list) < 6 || !failed(list[1:3]) || !failed(list[len(list)-2:]) {
		return nil, fmt.Errorf("the reply to a joint is %v", raw)
	}
	if list = list[3 : len(list)-2]; list[0] == int64(-1) && len(list) == 2 {
		return list[1], nil
	}
	if list[0] != int64(len(list)-1) {
		return nil, fmt.Errorf("the reply to a joint is %v", raw)
	}
	return list[1:], nil
}

// failed reports whether a joint says that a call had the wrong type.
func failed(part []any) bool {
	text, ok := part[1].(string)
	return ok && part[0] == int64(-2) && strings.Contains(text, "WRONGTYPE")
}

// text returns the source of a script.
func text(name string) string { return dispatch.Source(os.DirFS(".."), name) }
