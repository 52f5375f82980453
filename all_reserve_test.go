package ratelimiter

import (
	"context"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// otherProcess returns a Client of another process.
func (w *world) otherProcess() *Client {
	return newWorld(w.t, redistest.Peer(w.t, w.rdb)).client
}

func reserving(l *RateLimiter) bool {
	return l.handle.Snapshot().HeldUp
}

// reserved has list wait for permits of two limiters of 10 a minute, of which a faster process takes those of the second, and
// returns at 99 s, when the list has reserved what there is. peer is the second limiter, of that process. The channel
// receives the error of the list.
func reserved(w *world, list func(demands ...Demand) error) (l []*RateLimiter, peer *RateLimiter, done <-chan error) {
	l = w.others(overall(10, time.Minute), overall(10, time.Minute))
	other := w.otherProcess()
	w.t.Cleanup(func() { _ = other.Close() })
	peer = other.RateLimiter(l[1].Name())
	takes(w, peer, 6)
	w.at(30 * time.Second)
	takes(w, peer, 4)
	ended := make(chan error, 1)
	go func() { ended <- list(Demand{l[0], 3}, Demand{l[1], 9}) }()
	// The peer is a little faster at 60 s, so the list is rejected for longer than an interval.
	w.at(time.Minute - time.Millisecond)
	for range 40 {
		if ok, err := peer.TryAcquire(w.ctx, 2, 0); err == nil && ok {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	w.at(99 * time.Second)
	require.True(w.t, reserving(l[1]))
	return l, peer, ended
}

// takes takes n permits of l, which are free.
func takes(w *world, l *RateLimiter, n int64) {
	ok, err := l.TryAcquire(w.ctx, n, 0)
	require.True(w.t, ok && err == nil)
}

// TestAReservationWhoseStateIsGone checks that a list that takes permits ahead is granted although Redisson sets the
// rate, which deletes the permits left and those in use, or one of the two is evicted.
func TestAReservationWhoseStateIsGone(t *testing.T) {
	for name, gone := range map[string]func(keys []string) []string{
		"setRate of Redisson":            func(keys []string) []string { return keys[1:] },
		"the permits left are evicted":   func(keys []string) []string { return keys[1:2] },
		"the permits in use are evicted": func(keys []string) []string { return keys[2:] },
	} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				ctx, cancel := context.WithDeadline(w.ctx, time.Now().Add(30*time.Second+4*time.Minute))
				defer cancel()
				l, peer, done := reserved(w, func(demands ...Demand) error { return errOf(w.client.AcquireAll(ctx, demands...)) })
				require.NoError(t, w.rdb.Del(w.ctx, gone(keysOf(l[1], Overall))...).Err())
				require.NoError(t, <-done)
				time.Sleep(time.Minute + time.Millisecond)
				takes(w, peer, 10)
			})
		})
	}
}

// TestReserve checks that reserved permits count as used for everybody, that a reservation moves to the present,
// and that its count stays exact after a release by others, a lost reply, a cool-down and an expiry.
func TestReserve(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		v := permit.Reservation{ID: redisson.RandomID().Run(0)}
		send := func(want int64, whole bool) error {
			v.Want, v.Whole = want, whole
			a, err := w.l.redis.Reserve(w.ctx, v)
			v.Held, v.Unsure = a.Held, false
			return err
		}
		sum := func() {
			t.Helper()
			used, _ := w.used()
			require.EqualValues(t, 10, w.value()+used)
		}
		takes := func(want, held int64, whole bool) {
			t.Helper()
			require.NoError(t, send(want, whole))
			require.Equal(t, held, v.Held)
			sum()
		}
		w.granted(5)
		takes(8, 0, true)
		takes(8, 5, false)
		w.available(0)
		w.at(9 * time.Second)
		takes(8, 5, false) // the reservation has moved to 9 s
		w.at(10 * time.Second)
		takes(8, 8, false) // 5 permits are free again
		w.available(2)
		w.at(19*time.Second + 999*time.Millisecond)
		w.available(2)
		v.Unsure, v.Held = true, 3 // as if the reply that granted 8 had been lost
		takes(8, 8, false)
		require.NoError(t, w.l.Release(w.ctx, 2)) // somebody else releases
		takes(8, 8, false)
		w.available(2)
		w.granted(2)
		w.at(40 * time.Second) // the reservation was not moved, so it has expired, but nobody has taken its permits
		takes(8, 8, false)
		require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)))
		takes(8, 0, false)
		w.rejected(1, time.Minute)
		sum()
		w.at(101 * time.Second)
		takes(8, 8, true)
		takes(0, 0, false)
		w.available(10)
		takes(0, 0, false)
		_, err := w.rdb.Del(w.ctx, w.valueKey()).Result()
		require.NoError(t, err)
		require.NoError(t, send(8, false))
		require.Zero(t, v.Held, "for acquire to rebuild")
		require.NoError(t, w.l.SetRate(w.ctx, overall(7, time.Second)))
		require.ErrorIs(t, send(8, false), ErrPermitsExceedRate)
	})
}
