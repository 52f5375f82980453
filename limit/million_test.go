// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// millionCalls is an environment variable that makes TestSharedMillion make a million calls of every algorithm on
// every server, which takes five minutes.
const millionCalls = "RATELIMITER_LIMIT_MILLION"

// TestSharedMillion tests that over a million calls in virtual time the shared form and the local one return the
// same, to the microsecond. The token bucket gets the million in a long run without the race detector. The others,
// whose arithmetic does not change with the number of calls, get fewer, as do all of them in other runs. On
// miniredis, which compiles the script each time, TestLocalAndSharedAgree has to suffice.
func TestSharedMillion(t *testing.T) {
	redistest.NeedReal(t)
	for kind, a := range every() {
		t.Run(kind, func(t *testing.T) {
			calls := 20_000
			switch {
			case os.Getenv(millionCalls) != "" || redistest.Long() && !UnderRace && kind == "token bucket":
				calls = 1_000_000
			case UnderRace:
				calls = 5_000
			}
			// go-redis must not send a call again, however slow it is: that would take permits twice.
			patient := func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Minute }
			rdb, ctx := redistest.Client(t, patient), t.Context()
			var instants []int64 // of the calls that have not been made
			l, err := NewShared(rdb, redistest.Key(t), a, WithClock(func() (now time.Time) {
				now, instants = time.UnixMicro(instants[0]), instants[1:]
				return now
			}))
			require.NoError(t, err)
			script := a.script()
			require.NoError(t, rdb.ScriptLoad(ctx, script.Src).Err())
			var (
				local   = a.idle()
				random  = rand.New(rand.NewPCG(3, 4))
				begin   = int64(1_790_000_000_000_000)
				now     = begin
				granted int64
				want    []decision
			)
			const batch = 1000
			cmds := make([]*redis.Cmd, 0, batch)
			for i := 0; i < calls; i += batch {
				pipe := rdb.Pipeline()
				cmds, want = cmds[:0], want[:0]
				for range batch {
					q := demand{now: now, n: 1, spend: true}
					instants = append(instants, now)
					request := "1"
					if a.reserves() {
						request = "1:1:0"
					}
					l.config.now().redate(now)
					cmd := redistest.Must(l.config.command(l.config.now(), l.keys, request, l.config.ids.id(), first))(t)
					cmds = append(cmds, pipe.Do(ctx, cmd...))
					d := local.take(q)
					want = append(want, d)
					if d.granted {
						granted++
					}
					// A caller that asks again after each wait, sometimes too early, and sometimes pauses.
					switch random.IntN(20) {
					case 0:
						now += d.reset
					case 1, 2, 3, 4, 5:
						now += random.Int64N(d.wait + 1)
					default:
						now += d.wait
					}
				}
				redistest.Must(pipe.Exec(ctx))(t)
				for j, cmd := range cmds {
					reply := redistest.Must(l.read(cmd.Val()))(t)
					r := &request{demand: demand{n: 1, spend: true}, setting: l.config.now()}
					require.NoError(t, l.decide(&flight{runs: []run{{n: 1, spend: true, calls: []*request{r}}}, requests: 1}, reply, time.Now()))
					got := r.result
					if got != want[j].result() { // a million calls of require take longer than Redis
						require.Equal(t, want[j].result(), got, "call %d", i+j)
					}
				}
			}
			require.LessOrEqual(t, granted, a.Bound(micros(now-begin+1), 1))
			t.Logf("%d of %d calls granted in %v", granted, calls, micros(now-begin))
		})
	}
}
