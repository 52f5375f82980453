// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/stretchr/testify/require"
)

// A wire is an owner whose Redis replies to what is sent, or does not.
type wire struct {
	owner
	mu      sync.Mutex
	traffic permit.Traffic
	reply   time.Duration // how long a probe takes; 0 for one that is not sent
	err     error         // how it ends
	hello   bool          // something comes before its reply
	open    int           // probers that are not closed
}

func (w *wire) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *wire) Traffic() (t permit.Traffic) {
	w.locked(func() { t = w.traffic })
	return t
}

func (w *wire) Apart(_ context.Context, on permit.Wire) permit.Prober {
	w.locked(func() { w.open++ })
	return &prober{w, on}
}

type prober struct {
	w  *wire
	on permit.Wire
}

func (p *prober) Probe(ctx context.Context) (err error) {
	reply, hello := time.Duration(0), false
	p.w.locked(func() { reply, hello, err = p.w.reply, p.w.hello, p.w.err })
	if reply > 0 {
		p.on.Sent()
		if hello {
			p.on.Heard()
		}
	} else {
		reply = time.Hour
	}
	select {
	case <-time.After(reply):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *prober) Close() { p.w.locked(func() { p.w.open-- }) }

// TestDoubt checks that calls without a reply are an outage only if something was sent that has none: a second after it was
// found to have been sent, and not before the calls have waited for one and a half.
func TestDoubt(t *testing.T) {
	const ms, never = time.Millisecond, time.Minute
	sent := func(left, replied, newest int64, sent int) permit.Traffic {
		return permit.Traffic{Left: left, Replied: replied, Newest: newest, Sent: sent}
	}
	for name, c := range map[string]struct {
		reply   time.Duration // to a probe, before Redis stands still
		err     error
		hello   bool
		traffic func(at time.Duration) permit.Traffic
		stands  time.Duration // when Redis stands still
		down    time.Duration
	}{
		"nothing is sent, and the probe gets its reply": {reply: 100 * ms, stands: never},
		"the reply to the probe takes almost a second":  {reply: 999 * ms, stands: never},
		"the probe gets none":                           {reply: never, stands: never, down: 1500 * ms},
		"the probe is not sent: slow names":             {reply: 0, stands: never},
		"the hello is answered, and then it takes long": {reply: never, hello: true, stands: never},
		"nobody listens there":                          {reply: 1 * ms, err: &retry.Error{Err: errors.New("refused")}, stands: never, down: 1500 * ms},
		"the server says no":                            {reply: 1 * ms, err: &retry.Error{Err: errors.New("BUSY"), Answered: true}, stands: never},
		"the probe cannot be sent":                      {reply: 1 * ms, err: &retry.Error{Err: errors.New("no more files"), Local: true}, stands: never},
		"Redis stands still after the first probes":     {reply: 1 * ms, stands: 10_100 * ms, down: 11_254 * ms},
		"one that was sent has none": {reply: 1 * ms, stands: never, down: 1500 * ms,
			traffic: func(time.Duration) permit.Traffic { return sent(1, 0, 0, 1) }},
		"one that was sent has none, and there is no probe": {reply: 0, stands: never, down: 1500 * ms,
			traffic: func(time.Duration) permit.Traffic { return sent(1, 0, 0, 1) }},
		"one is sent after three seconds": {reply: 1 * ms, stands: never, down: 4000 * ms,
			traffic: func(at time.Duration) permit.Traffic {
				if at < 3*time.Second {
					return sent(5, 0, 0, 0)
				}
				return sent(5, 0, 0, 1)
			}},
		"one that was sent fails, and others wait for a connection": {reply: 1 * ms, stands: never,
			traffic: func(at time.Duration) permit.Traffic {
				if at < 600*ms {
					return sent(5, 0, 0, 1)
				}
				return sent(5, 0, 0, 0)
			}},
		"replies come, for others": {reply: 1 * ms, stands: never,
			traffic: func(at time.Duration) permit.Traffic { n := int64(at / (200 * ms)); return sent(n+3, n, n, 3) }},
		"late replies to calls from before": {reply: 1 * ms, stands: never, down: 1500 * ms,
			traffic: func(at time.Duration) permit.Traffic { return sent(12, min(2, int64(at/(500*ms))), 2, 10) }},
		"one hangs, and one that left later has its reply": {reply: 1 * ms, stands: never,
			traffic: func(at time.Duration) permit.Traffic { n := int64(at / (200 * ms)); return sent(n+100, 0, n+100, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h Health
				w := &wire{reply: c.reply, hello: c.hello, err: c.err}
				begin := time.Now()
				done, looking := make(chan bool), sync.WaitGroup{}
				if c.traffic != nil {
					w.traffic = c.traffic(0)
					looking.Go(func() {
						for tick := time.NewTicker(10 * ms); ; {
							select {
							case <-tick.C:
								w.locked(func() { w.traffic = c.traffic(time.Since(begin)) })
							case <-done:
								tick.Stop()
								return
							}
						}
					})
				}
				calls := [2]Call{{Owner: w}, {Owner: w}}
				for i := range calls {
					_, _, err := h.Allow(&calls[i])
					require.NoError(t, err)
				}
				time.AfterFunc(c.stands, func() { w.locked(func() { w.reply = never }) })
				time.Sleep(30 * time.Second)
				synctest.Wait()
				since, err := h.Since()
				require.Equal(t, c.down > 0, err != nil, "%v", err)
				if c.down > 0 {
					// The looks at what is on its way are a quarter of a second apart.
					require.InDelta(t, c.down.Seconds(), since.Sub(begin).Seconds(), 0.26)
					require.Len(t, w.told, 1)
				}
				for i := range calls {
					h.End(&calls[i])
				}
				close(done)
				looking.Wait()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Zero(t, w.open, "no connection is left")
				require.True(t, h.Idle())
			})
		})
	}
}

// TestDoubtOfAProcessThatStandsStill checks that the time for which this process does not run does not count for what it has
// sent either: replies are there that it has not read.
func TestDoubtOfAProcessThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		w := &wire{reply: time.Millisecond}
		calls := [2]Call{{Owner: w}, {Owner: w}}
		for i := range calls {
			_, _, err := h.Allow(&calls[i])
			require.NoError(t, err)
		}
		time.Sleep(5 * time.Second)
		w.locked(func() { w.reply, w.traffic = time.Minute, permit.Traffic{Left: 2, Sent: 2} })
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		const stood = 20 * time.Second
		h.mu.Lock() // twenty seconds pass of which the timer knows nothing
		s := &h.unanswered
		s.fires, s.from, s.heard = s.fires.Add(-stood), s.from.Add(-stood), s.heard.Add(-stood)
		s.doubt.looked, s.doubt.asked = s.doubt.looked.Add(-stood), s.doubt.asked.Add(-stood)
		for c := s.first; c != nil; c = c.next {
			c.begin = c.begin.Add(-stood)
		}
		h.mu.Unlock()
		time.Sleep(390 * time.Millisecond)
		synctest.Wait()
		require.False(t, h.Down())
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		require.True(t, h.Down(), "the silence lasts")
		for i := range calls {
			h.End(&calls[i])
		}
	})
}
