package limit

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// millionCalls makes TestSharedMillion take the million for every algorithm and on every server: five
// minutes.
const millionCalls = "RATELIMITER_LIMIT_MILLION"

// TestSharedMillion: over a million virtual calls a shared limiter and the local form answer the same to
// the microsecond, call by call. The million is for the token bucket, in a run that is long and without the race
// detector; the others, whose arithmetic is no other at the millionth call, get fewer, and so do all in other runs. miniredis compiles the script each time: there
// TestLocalAndSharedAgree has to do.
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
			// Not sent again by go-redis, however slow: that would spend twice.
			patient := func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Minute }
			rdb, ctx := redistest.Client(t, patient), t.Context()
			l, err := NewShared(rdb, redistest.Key(t), a)
			require.NoError(t, err)
			script := a.script()
			require.NoError(t, rdb.ScriptLoad(ctx, script.Src).Err())
			var (
				local   = a.idle()
				random  = rand.New(rand.NewPCG(3, 4))
				begin   = int64(1_790_000_000_000_000)
				now     = begin
				id      = make([]byte, 8)
				granted int64
				want    []decision
			)
			const batch = 1000
			cmds := make([]*redis.Cmd, 0, batch)
			for i := 0; i < calls; i += batch {
				pipe := rdb.Pipeline()
				cmds, want = cmds[:0], want[:0]
				for j := range batch {
					binary.BigEndian.PutUint64(id, uint64(i+j))
					q := request{now: now, n: 1, spend: true}
					args := l.family.arguments(q, id, &retry.Attempts{})
					args[0], args[2] = now, string(id)
					cmd, err := script.Command(l.keys, args...)
					require.NoError(t, err)
					cmds = append(cmds, pipe.Do(ctx, cmd...))
					d := local.take(q)
					want = append(want, d)
					if d.granted {
						granted++
					}
					// A greedy caller, who now and then asks too early, and once in a while rests.
					switch random.IntN(20) {
					case 0:
						now += d.reset
					case 1, 2, 3, 4, 5:
						now += random.Int64N(d.wait + 1)
					default:
						now += d.wait
					}
				}
				_, err := pipe.Exec(ctx)
				require.NoError(t, err)
				for j, cmd := range cmds {
					got, err := l.read(cmd.Val())
					require.NoError(t, err)
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
