// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// proxied returns a proxy in front of the lane's server, a client that uses it and sends everything once, and a
// client that does not use it.
func proxied(t *testing.T) (p *Proxy, through, past *redis.Client) {
	past = Client(t)
	p = StartProxy(t, past.Options().Addr)
	return p, Client(t, func(o *redis.Options) {
		o.Addr, o.MaxRetries, o.DialerRetries, o.PoolSize = p.Addr(), -1, 1, 16
		o.ReadTimeout = 30 * time.Second
	}), past
}

// bare sends a command without go-redis, which checks a connection before it reads from it and therefore takes a
// reset for an end of file.
func bare(t *testing.T, p *Proxy, words ...string) error {
	conn, err := net.Dial("tcp", p.Addr())
	if !assert.NoError(t, err) {
		return nil
	}
	defer conn.Close()
	request := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	_, err = io.WriteString(conn, request)
	assert.NoError(t, err)
	_, err = conn.Read(make([]byte, 64))
	return err
}

// on applies a fault to the commands of that name.
func on(name string, f Fault) func([]string) Fault {
	return func(words []string) Fault {
		if strings.EqualFold(words[0], name) {
			return f
		}
		return Fault{}
	}
}

// TestProxyLoses has the proxy lose a reply, of what Redis has executed, and a request, of which Redis knows nothing, with an end of
// file and with a reset. Others pass.
func TestProxyLoses(t *testing.T) {
	for lose, want := range map[Loss]struct {
		executed string
		counts   ProxyCounts
	}{
		LoseReply:   {"2", ProxyCounts{LostReplies: 2}},
		LoseRequest: {"0", ProxyCounts{LostRequests: 2}},
	} {
		p, through, past := proxied(t)
		ctx, name := t.Context(), Key(t)
		require.NoError(t, past.Set(ctx, name, 0, 0).Err())
		p.Judge(on("incr", Fault{Lose: lose}))
		assert.ErrorIs(t, through.Incr(ctx, name).Err(), io.EOF)
		p.Judge(on("incr", Fault{Lose: lose, Reset: true}))
		assert.ErrorIs(t, bare(t, p, "incr", name), syscall.ECONNRESET)
		assert.Equal(t, want.executed, past.Get(ctx, name).Val())
		assert.Equal(t, want.executed, through.Get(ctx, name).Val(), "others pass")
		got := p.Counts()
		assert.Equal(t, 3, got.Connections)
		got.Connections, got.Requests, got.Replies = 0, 0, 0
		assert.Equal(t, want.counts, got)
	}
}

// TestProxyLosesOneOfAPipeline checks that the replies before the lost one arrive.
func TestProxyLosesOneOfAPipeline(t *testing.T) {
	p, through, past := proxied(t)
	ctx, name := t.Context(), Key(t)
	seen := 0
	p.Judge(func(words []string) (f Fault) {
		if words[0] == "incr" {
			if seen++; seen == 2 {
				f.Lose = LoseReply
			}
		}
		return f
	})
	replies, err := through.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 3 {
			pipe.Incr(ctx, name)
		}
		return nil
	})
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, int64(1), replies[0].(*redis.IntCmd).Val())
	assert.ErrorIs(t, replies[1].Err(), io.EOF)
	assert.Contains(t, []string{"2", "3"}, past.Get(ctx, name).Val())
}

func TestProxyDoublesRequests(t *testing.T) {
	p, through, past := proxied(t)
	ctx, name := t.Context(), Key(t)
	p.Judge(on("incr", Fault{Twice: true}))
	assert.Equal(t, int64(1), through.Incr(ctx, name).Val())
	assert.Equal(t, int64(3), through.Incr(ctx, name).Val())
	assert.Equal(t, "4", through.Get(ctx, name).Val(), "the replies that follow are those of what was asked")
	p.Judge(on("incr", Fault{Twice: true, Lose: LoseReply}))
	assert.ErrorIs(t, through.Incr(ctx, name).Err(), io.EOF)
	assert.Equal(t, "6", past.Get(ctx, name).Val())
	assert.Equal(t, 3, p.Counts().Doubled)
	assert.Equal(t, 1, p.Counts().LostReplies)
}

func TestProxyHoldsAndCutsReplies(t *testing.T) {
	p, through, past := proxied(t)
	ctx, name := t.Context(), Key(t)
	p.Judge(on("incr", Fault{Hold: 50 * time.Millisecond}))
	began := time.Now()
	assert.Equal(t, int64(1), through.Incr(ctx, name).Val())
	assert.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
	p.Judge(nil)

	p.Hold()
	done, failed := make(chan int64), make(chan error)
	go func() { done <- through.Incr(ctx, name).Val() }()
	held := func(executed string, n int) {
		require.Eventually(t, func() bool { return past.Get(ctx, name).Val() == executed && p.Counts().Held == n }, time.Minute, time.Millisecond)
	}
	held("2", 2)
	assert.Empty(t, done)
	p.Unhold()
	assert.Equal(t, int64(2), <-done)
	p.Hold()
	go func() { failed <- bare(t, p, "incr", name) }()
	held("3", 3)
	p.Cut(true)
	assert.ErrorIs(t, <-failed, syscall.ECONNRESET)
}

func TestProxyRejects(t *testing.T) {
	p, through, _ := proxied(t)
	ctx, name := t.Context(), Key(t)
	require.NoError(t, through.Incr(ctx, name).Err())
	p.Reject()
	assert.Equal(t, int64(2), through.Incr(ctx, name).Val(), "a connection that is there stays")
	p.Cut(false)
	var dial *net.OpError
	require.ErrorAs(t, through.Incr(ctx, name).Err(), &dial)
	assert.Equal(t, "dial", dial.Op)
	p.Admit()
	assert.Equal(t, int64(3), through.Incr(ctx, name).Val())
}

// TestProxySpoilsWhatIsOpen breaks a connection at its next request, in each way, and leads those that are opened later to where
// it was told.
func TestProxySpoilsWhatIsOpen(t *testing.T) {
	for how, want := range map[Spoil]struct {
		executed string
		err      error
	}{SpoilReset: {"1", io.EOF}, SpoilReplies: {"2", io.EOF}, SpoilSilent: {"1", os.ErrDeadlineExceeded}} {
		p, through, past := proxied(t)
		ctx, name := t.Context(), Key(t)
		through.Options().ReadTimeout = 500 * time.Millisecond
		require.NoError(t, through.Incr(ctx, name).Err())
		p.Spoil(how)
		require.ErrorIs(t, through.Incr(ctx, name).Err(), want.err)
		require.Equal(t, want.executed, past.Get(ctx, name).Val())
		require.NoError(t, through.Incr(ctx, name).Err(), "a new connection")
		p.Redirect(Start(t).Addr())
		require.NoError(t, through.Incr(ctx, name).Err(), "an open connection stays where it is")
		p.Cut(false)
		require.EqualValues(t, 1, through.Incr(ctx, name).Val())
	}
}
