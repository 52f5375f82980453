// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// newDingDemo does what newDemo does. A bubble in which it leaves a goroutine fails.
func newDingDemo(t *testing.T, rdb *redis.Client, out io.Writer) *dingDemo {
	l := newPipes()
	d := &dingDemo{
		store:  &store{rdb: rdb, where: "a test's Redis", name: redistest.Key(t), close: func() {}},
		parts:  theDingParts,
		margin: dingMargin,
		view:   &dingPlain{out},
		warn:   io.Discard,
		listen: func() (net.Listener, error) { return l, nil },
		dial:   l.dial,
	}
	if !redistest.TTLsAreVirtual() {
		d.options = append(d.options, ratelimiter.WithClientClock())
	}
	return d
}

// inDing runs f in virtual time, with a demo and what it prints.
func inDing(t *testing.T, f func(t *testing.T, d *dingDemo, out *bytes.Buffer), opts ...func(*redis.Options)) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		var out bytes.Buffer
		f(t, newDingDemo(t, rdb, &out), &out)
	}, opts...)
}

var dingVerdict = regexp.MustCompile(`^penalties: (\d+) \(without the limiter (\d+)\); most in any 1s: (\d+) \(limit 20\); ` +
	`sent during the known ban: (\d+); (\d+)% of the allowed rate$`)

func verdict(t *testing.T, out []byte) (n [5]int) {
	t.Helper()
	line := lastLine(t, out)
	m := dingVerdict.FindStringSubmatch(line)
	require.NotNil(t, m, "%q", line)
	for i := range n {
		n[i] = redistest.Must(strconv.Atoi(m[i+1]))(t)
	}
	return n
}

// A dingBoth shows a demo in both views.
type dingBoth struct{ dingPlain, dingJSON dingView }

func (v dingBoth) begin(i dingIntro) { v.dingPlain.begin(i); v.dingJSON.begin(i) }
func (v dingBoth) act(e dingEvent)   { v.dingPlain.act(e); v.dingJSON.act(e) }
func (v dingBoth) second(r dingRow)  { v.dingPlain.second(r); v.dingJSON.second(r) }
func (v dingBoth) tell(e dingEvent)  { v.dingPlain.tell(e); v.dingJSON.tell(e) }
func (v dingBoth) end(s dingSummary) { v.dingPlain.end(s); v.dingJSON.end(s) }
func (v dingBoth) close()            { v.dingPlain.close(); v.dingJSON.close() }

// TestDingtalk runs the whole demo, with its quiet parts shortened: 19 s of virtual time.
func TestDingtalk(t *testing.T) {
	inDing(t, func(t *testing.T, d *dingDemo, out *bytes.Buffer) {
		var lines bytes.Buffer
		d.view = dingBoth{&dingPlain{out}, &dingJSON{jsonView{out: &lines}}}
		p := d.parts
		require.Less(t, p.Without+p.With+p.Ban+p.After, 45*time.Second)
		d.parts = dingParts{2 * time.Second, 4 * time.Second, p.Ban, 3 * time.Second}
		start := time.Now()
		require.NoError(t, d.run(t.Context()))
		took := time.Since(start)
		require.GreaterOrEqual(t, took, 19*time.Second)
		require.LessOrEqual(t, took, 19*time.Second+dingGrace+100*time.Millisecond, "and the last calls, which wait for each other")
		requireDingText(t, out.Bytes())
		requireDingJSON(t, lines.Bytes())
		d.store.requireNoKeys(t)
	})
}

func requireDingText(t *testing.T, out []byte) {
	t.Helper()
	text := string(out)
	for _, want := range []string{
		`A ban of 5m0s is shortened to 10s, in the gateway and in the profile; all else is as it is.`,
		`Without a limiter, as it is today.`,
		`With the profile platform.DingTalk.`,
		`Somebody else behind 203.0.113.7 .* bans the address for 10s \(DingTalk: 5m0s\).`,
		`  6.0\ds  \w+ meets the ban: status 1111, punish deny`,
		`  6.0\ds  {dingtalk}:ip:203.0.113.7:20s cools down: the whole fleet is silent`,
		// No calls are made: 8 are waiting, the address has no permit, and both countdowns run.
		`  9.0s       8       0    7.1s      0        0        0   20/20         0  7.0s`,
		` 16.0\ds  the ban is over`,
		` 16.0\ds  the first call since: \d+ms after the ban ended`,
		`no limiter   +\d+ calls in 2s, 80 admitted, \d+ rejected`,
		`the ban      known to all after \d+ms; the gateway saw \d calls in it, the last after \d+ms`,
	} {
		require.Regexp(t, `(?m)^`+want+`$`, text)
	}
	require.NotContains(t, text, "\x1b")
	n := verdict(t, out)
	require.Zero(t, n[0])
	require.Equal(t, 4, n[1], "each API is punished twice in 2 s")
	require.LessOrEqual(t, n[2], 20)
	require.Zero(t, n[3])
	require.InDelta(t, 95, n[4], 2)
}

func requireDingJSON(t *testing.T, out []byte) {
	t.Helper()
	events, acts := map[string]int{}, []string{}
	var seconds []map[string]any
	var begin, last map[string]any
	for line := range bytes.Lines(out) {
		last = nil
		require.NoError(t, json.Unmarshal(line, &last), "%s", line)
		event := last["event"].(string)
		events[event]++
		switch event {
		case "begin":
			begin = last
		case "act":
			acts = append(acts, last["act"].(string))
		case "known":
			require.Len(t, seconds, 6)
		case "resumed":
			require.Len(t, seconds, 16)
		case "second":
			seconds = append(seconds, last)
		}
	}
	require.Equal(t, []string{"without", "profile", "ban", "after"}, acts)
	require.Equal(t, map[string]int{"begin": 1, "act": 4, "second": 19, "ban": 1, "met": 1, "known": 1, "over": 1, "resumed": 1, "summary": 1}, events)
	require.EqualValues(t, 10_000, begin["ban_ms"])
	require.EqualValues(t, 300_000, begin["real_ban_ms"])

	for _, s := range seconds[7:15] {
		require.Zero(t, s["calls"], "in the ban")
		require.Zero(t, s["address_permits"])
		require.EqualValues(t, len(dingServices)*len(dingAPIs), s["waiting"])
		require.InDelta(t, 16_020-s["at_ms"].(float64), s["banned_ms"], 50)
		more := s["cool_down_ms"].(float64) - s["banned_ms"].(float64)
		require.True(t, 0 < more && more < 100, "it ends %v ms after the ban", more)
	}
	require.Nil(t, seconds[0]["address_permits"], "there is no limiter")
	first, end := seconds[16]["address_permits"].(float64), seconds[18]["address_permits"].(float64)
	require.Less(t, first, 1000.0, "the address opens little by little")
	require.Greater(t, end, 1.5*first)

	require.Equal(t, "summary", last["event"])
	require.Equal(t, true, last["ok"])
	require.Zero(t, last["penalties"])
	require.Zero(t, last["sent_during_known_ban"])
	require.Less(t, last["last_after_ms"], 80.0, "the gateway too saw nobody after that")
	require.Positive(t, last["admitted_after_ban"])
	require.Regexp(t, dingVerdict, last["text"])

	// The calls that the services sent are those that the gateways counted.
	var sent, calls float64
	for _, n := range seconds[18]["sent"].(map[string]any) {
		sent += n.(float64)
	}
	for _, s := range seconds {
		calls += s["calls"].(float64)
	}
	require.InDelta(t, sent, calls, 10, "but for those on their way where a part ends")
}

// TestDingtalkFindsPenalties checks a profile without its margin: 20 calls a second leave, and 21 arrive in one.
func TestDingtalkFindsPenalties(t *testing.T) {
	inDing(t, func(t *testing.T, d *dingDemo, out *bytes.Buffer) {
		d.margin = 0
		d.parts = dingParts{500 * time.Millisecond, 3 * time.Second, 500 * time.Millisecond, 500 * time.Millisecond}
		err := d.run(t.Context())
		require.Error(t, err)
		require.Regexp(t, `^penalties with the limiter: \d+; the delays of the calls differed by up to \d+ms, and the margin is 0s$`, err.Error())
		n := verdict(t, out.Bytes())
		require.Positive(t, n[0])
		require.Greater(t, n[2], 20)
	})
}

// TestDingtalkFindsCallsDuringTheBan checks a cool-down that is too short: the fleet is silent only until it ends.
func TestDingtalkFindsCallsDuringTheBan(t *testing.T) {
	inDing(t, func(t *testing.T, d *dingDemo, out *bytes.Buffer) {
		d.adjust = []platform.Option{platform.WithPenalty(platform.ScopeIP, 200*time.Millisecond)}
		d.parts = dingParts{500 * time.Millisecond, time.Second, 2 * time.Second, 500 * time.Millisecond}
		err := d.run(t.Context())
		require.ErrorContains(t, err, "calls sent although the ban was known: ")
		n := verdict(t, out.Bytes())
		require.Positive(t, n[3])
		require.Contains(t, out.String(), "  a call was sent although the ban was known\n")
	})
}

func TestDingtalkInterrupted(t *testing.T) {
	for _, after := range []time.Duration{0, 300 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			var c connections
			inDing(t, func(t *testing.T, d *dingDemo, out *bytes.Buffer) {
				d.parts = dingParts{500 * time.Millisecond, time.Second, time.Second, time.Second}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(after, cancel)
				start := time.Now()
				require.Equal(t, command.ErrInterrupted, d.run(ctx))
				require.Less(t, time.Since(start), after+500*time.Millisecond)
				require.NotContains(t, out.String(), "of the allowed rate", "no verdict on half a demo")
				d.store.requireNoKeys(t)
				require.EqualValues(t, d.store.rdb.PoolStats().TotalConns, c.count(), "connections that nobody closed")
			}, c.option)
		})
	}
}

func TestDingtalkLosesRedis(t *testing.T) {
	var c connections
	inDing(t, func(t *testing.T, d *dingDemo, out *bytes.Buffer) {
		var warn bytes.Buffer
		d.warn = &warn
		d.parts = dingParts{500 * time.Millisecond, time.Minute, time.Second, time.Second}
		time.AfterFunc(time.Second, c.cut)
		start := time.Now()
		err := d.run(t.Context())
		require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
		require.Regexp(t, `^the service (orders|payroll|alerts|crm): `, err.Error())
		require.Less(t, time.Since(start), 40*time.Second, "not at the end")
		require.NotContains(t, out.String(), "of the allowed rate")
		require.Equal(t, 1, strings.Count(warn.String(), "could not delete the limiter"), "one line for one fault")
	}, c.option)
}

// connections are the connections to a Redis that can go down.
type connections struct {
	down atomic.Bool
	open sync.Map // of the connections
}

// A connection is one of connections as long as it is open.
type connection struct {
	net.Conn
	all *connections
}

func (k *connection) Close() error {
	k.all.open.Delete(k)
	return k.Conn.Close()
}

func (c *connections) option(o *redis.Options) {
	away(&c.down)(o)
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		k := &connection{conn, c}
		c.open.Store(k, true)
		return k, nil
	}
}

// cut closes the connections as a Redis that dies does.
func (c *connections) cut() {
	c.down.Store(true)
	c.open.Range(func(k, _ any) bool { _ = k.(*connection).Conn.Close(); return true })
}

func (c *connections) count() (n int) {
	c.open.Range(func(any, any) bool { n++; return true })
	return n
}
