package ratelimiter

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A dawdler is a hook that lets time pass after each script, as it does on a busy machine or a slow network.
type dawdler struct {
	scriptHook
	pause time.Duration
}

func (d *dawdler) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") {
			time.Sleep(d.pause)
		}
		return err
	}
}

// TestRateLoweredOverALargeSetUnderLoad lowers the rate of a limiter with more members than one call reads, while
// another process takes every permit that it gets. No window may hold a grant that the new rate does not have room
// for: not before the calls that settle the permits in use, not between them, and not if they are never made.
func TestRateLoweredOverALargeSetUnderLoad(t *testing.T) {
	const used, interval = 1200, 12 * time.Second
	for name, c := range map[string]struct {
		value int64 // that the limiter has before, of a rate of value + used
		lost  bool
		rate  int64
		fails bool // the caller is gone before it has settled the permits in use
		twice bool // two do it at the same time
	}{
		"lowered":                        {rate: 100},
		"lowered, and some are free":     {value: 500, rate: 100},
		"lowered, and the value is lost": {lost: true, rate: 100},
		"lowered, and nobody settles it": {value: 500, rate: 100, fails: true},
		"lowered by two at once":         {value: 500, rate: 100, twice: true},
		"raised":                         {value: 10, rate: 1250},
		"raised, and nobody settles it":  {value: 10, rate: 1250, fails: true},
		"the same, and nobody settles":   {value: 100, rate: 1300, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(c.value+used, interval), func(t *testing.T, w *world) {
				log := &windowLog{}
				for i := range used { // one every 10 ms, the oldest of which have expired already
					at := -interval - time.Second + time.Duration(i)*10*time.Millisecond
					w.put(at, grant(1))
					log.add(at, 1)
				}
				w.setValue(c.value)
				if c.lost {
					require.NoError(t, w.rdb.Del(w.ctx, w.valueKey()).Err())
				}
				peer := newWorld(t, redistest.Peer(t, w.rdb))
				defer peer.client.Close()
				peer.l = peer.client.RateLimiter(w.l.Name())
				_, err := peer.l.Peek(w.ctx, 1)
				require.NoError(t, err)

				ctx, cancel := context.WithCancel(w.ctx)
				w.rdb.AddHook(&dawdler{pause: 50 * time.Millisecond})
				var updating sync.WaitGroup
				defer updating.Wait()
				defer cancel()
				updating.Go(func() { err = w.l.SetRate(ctx, overall(c.rate, interval), KeepState()) })
				if c.twice {
					second := newWorld(t, redistest.Peer(t, w.rdb))
					defer second.client.Close()
					second.rdb.AddHook(&dawdler{pause: 70 * time.Millisecond})
					l := second.client.RateLimiter(w.l.Name())
					updating.Go(func() { _ = l.SetRate(ctx, overall(c.rate, interval), KeepState()) })
				}
				time.Sleep(time.Millisecond) // the first script has run
				if c.fails {
					cancel()
				}
				for begin := w.elapsed(); w.elapsed() < begin+interval; {
					if peer.try(1).Granted {
						log.add(w.elapsed(), 1)
						require.LessOrEqual(t, log.last(interval), c.rate, "permits in the window at %v", w.elapsed())
					}
					if time.Sleep(5 * time.Millisecond); w.elapsed() > begin+time.Second {
						time.Sleep(25 * time.Millisecond)
					}
				}
				if updating.Wait(); c.fails {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					require.NoError(t, err)
				}
				time.Sleep(interval)
				peer.granted(c.rate)
				w.settled(c.rate)
			})
		})
	}
}

// last returns the permits in the window that ends with the newest grant.
func (l *windowLog) last(interval time.Duration) (sum int64) {
	for i := len(l.grants) - 1; i >= 0 && l.grants[i].at > l.grants[len(l.grants)-1].at-interval; i-- {
		sum += l.grants[i].permits
	}
	return sum
}
