// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestMembersThatAreNoGrants shows a tripwire, a reservation and the blocks of a cool-down as what they are.
func TestMembersThatAreNoGrants(t *testing.T) {
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	limiter(t, rdb, name, ratelimiter.Rate{Permits: 10, Interval: time.Hour})
	now := rdb.Time(t.Context()).Val()
	id, other := redisson.RandomID(), redisson.RandomID()
	put := func(at time.Time, member []byte) { s.do("zadd", "{"+name+"}:permits", at.UnixMilli(), member) }
	put(time.UnixMilli(0), []byte("\x10~w~\x01\x00\x00\x00ab\x00\x12\x34\x56\x00\x00\x00\x01\x00\x00\x00"))
	put(now, redisson.Member(false, id, 7))
	put(now.Add(-time.Minute), redisson.Member(false, other, 2))
	s.do("set", "{"+name+"}:value", 0)
	s.do("set", "{"+name+"}:ahead", fmt.Sprintf("%x %d 0 0 %d 0", id[:], now.Add(time.Hour).UnixMilli(), now.Add(time.Hour).UnixMilli()))
	rows := func() [][]string {
		p := s.get("limiter?name=" + url.QueryEscape(name))
		require.NotContains(t, p.body, "1970-01")
		var list [][]string
		for _, m := range regexp.MustCompile(`(?s)<tr><td class="mono">(.*?)</td><td class="num">(.*?)</td><td class="num">(.*?)</td><td>(.*?)</td>`).FindAllStringSubmatch(p.body, -1) {
			list = append(list, m[1:])
		}
		return list
	}
	got := rows()
	require.NotContains(t, s.get("limiter?name="+url.QueryEscape(name)).body, "have expired", "a tripwire is no permit that expires")
	require.Len(t, got, 3)
	require.Equal(t, []string{now.UTC().Format("15:04:05.000"), "7", got[0][2], fmt.Sprintf(`Go %x <i class="tag">reserved ahead</i>`, id[:2])}, got[0])
	require.Equal(t, []string{now.Add(-time.Minute).UTC().Format("15:04:05.000"), "2", got[1][2], fmt.Sprintf("Go %x", other[:2])}, got[1])
	require.Equal(t, []string{"–", "1", "–", `Go <i class="tag">callers wait</i>`}, got[2])

	// A cool-down blocks what is in use, which has been granted, and what is free, which has not.
	s.do("del", name, "{"+name+"}:value", "{"+name+"}:permits")
	limiter(t, rdb, name, ratelimiter.Rate{Permits: 10, Interval: time.Minute}, 4)
	granted := rows()[0][0]
	c := clienttest.New(t, rdb)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.RateLimiter(name).CoolDown(t.Context(), time.Now().Add(time.Hour)))
	got = rows()
	require.Len(t, got, 2)
	for _, row := range got {
		require.Contains(t, row[3], "cool-down")
		require.Regexp(t, `^(59m\d\ds|1h00m)$`, row[2])
		require.Equal(t, map[string]string{"4": granted, "6": "–"}[row[1]], row[0])
	}
}

// TestWhatIsBrokenIsMarked shows in the list, and at the link to the doctor, what the doctor has found.
func TestWhatIsBrokenIsMarked(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s, base := newSite(t, rdb, WithWrites(writeToken)), redistest.Key(t)
		limiter(t, rdb, base+"good", tenAMinute, 2)
		limiter(t, rdb, base+"bad", tenAMinute, 2)
		s.do("set", "{"+base+"bad}:value", 500)
		s.get("") // begins a round, which may end before the page is written
		synctest.Wait()
		p := s.get("?q=" + url.QueryEscape(base))
		require.Regexp(t, `id="found" class="badge" title="findings">[1-9]`, p.body)
		require.Contains(t, s.get("?lang=zh&q="+url.QueryEscape(base)).body, `title="诊断发现的问题">⚠ 许可过多</i>`)
		require.Regexp(t, `<tr class="broken">\n<th scope="row" class="name"><a [^>]*>`+base+`bad</a> <i class="tag bad" title="what the doctor has found">⚠ [a-z, ]*surplus`, p.body)
		require.NotRegexp(t, base+`good</a> <i`, p.body)
		require.Equal(t, []string{base + "bad"}, s.get("?only=broken&q="+url.QueryEscape(base)).names())
		require.Regexp(t, `"found":[1-9]`, s.get("state").body)

		// A change makes it look again, and so does time.
		r := s.post("change?name="+url.QueryEscape(base+"bad"), nil, "action", "set-rate", "permits", "10", "interval", "1m", "forget", "1", "token", writeToken)
		require.Equal(t, http.StatusSeeOther, r.Code)
		s.get("")
		synctest.Wait()
		require.NotContains(t, s.get("?q="+url.QueryEscape(base)).body, `class="tag bad"`)
		s.do("set", "{"+base+"good}:value", 500)
		time.Sleep(roundAge)
		s.get("")
		synctest.Wait()
		require.Contains(t, s.get("?q="+url.QueryEscape(base)).body, `class="tag bad"`)
	})
}

// TestTokens checks that nothing is shown without a token, that a wrong token is logged and answered late, in parallel and one after another, and that the right
// one is not.
func TestTokens(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		token := strings.Repeat("secret", 3)
		var log redistest.Log
		s := newSite(t, rdb, WithToken(token), WithWrites(writeToken), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		ask := func(password string) (int, time.Duration) {
			begin := time.Now()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.SetBasicAuth("anybody", password)
			return s.ask(r).Code, time.Since(begin)
		}
		for _, target := range []string{"", "limiter?name=a", "state", "page.css", "doctor", "change"} {
			p := s.get(target)
			require.Equal(t, http.StatusUnauthorized, p.Code, target)
			require.Contains(t, p.Header().Get("WWW-Authenticate"), "Basic")
		}
		require.Equal(t, http.StatusOK, s.get("", "Authorization", "Bearer "+token).Code)
		require.Empty(t, log.String(), "no token at all is no guess")
		code, took := ask(token)
		require.Equal(t, http.StatusOK, code)
		require.Zero(t, took)
		code, took = ask("wrong wrong wrong")
		require.Equal(t, http.StatusUnauthorized, code)
		require.Equal(t, time.Second, took)
		require.Equal(t, 1, strings.Count(log.String(), `msg="ratelimiterpage: a wrong token" for=looking remote=192.0.2.1:1234`))
		require.NotContains(t, log.String(), "wrong wrong")
		require.Equal(t, http.StatusUnauthorized, s.get("", "Authorization", "Bearer ").Code)

		var all sync.WaitGroup
		for range mostGuesses {
			all.Go(func() { ask("wrong wrong wrong") })
		}
		synctest.Wait()
		code, took = ask("another wrong one")
		require.Equal(t, http.StatusTooManyRequests, code)
		require.Zero(t, took)
		all.Wait()
		code, _ = ask(token)
		require.Equal(t, http.StatusOK, code)

		begin := time.Now()
		r := httptest.NewRequest(http.MethodPost, "http://page.example/change?name=a", strings.NewReader("action=heal&token=guess"))
		r.Header = http.Header{"Sec-Fetch-Site": {"same-origin"}, "Content-Type": {"application/x-www-form-urlencoded"}}
		r.SetBasicAuth("", token)
		require.Equal(t, http.StatusForbidden, s.ask(r).Code)
		require.Equal(t, time.Second, time.Since(begin))
		require.Contains(t, log.String(), `a wrong token" for=changing`)
	})
}

// TestLongNamesInTheList shows that of a name of a megabyte the list has the beginning and the end, and that its link has all of it.
func TestLongNamesInTheList(t *testing.T) {
	redistest.NoRace(t, "one reader at a time")
	rdb := redistest.Client(t)
	s, base := newSite(t, rdb), redistest.Key(t)
	long := base + strings.Repeat("名", 1<<18)
	limiter(t, rdb, long, tenAMinute)
	defer s.do("del", long, "{"+long+"}:value", "{"+long+"}:permits") // searches among such names are slow
	p := s.get("?q=" + url.QueryEscape(base))
	require.Len(t, p.names(), 1)
	require.Less(t, len(p.names()[0]), nameShown+10)
	require.True(t, strings.HasPrefix(p.names()[0], base+"名"))
	require.True(t, strings.HasSuffix(p.names()[0], "名…"+strings.Repeat("名", nameShown/3/3)))
	require.Contains(t, html.UnescapeString(p.body), url.QueryEscape(long))
}

// TestCommandsNameTheRedis checks the Redis in the commands that somebody copies: without a password, whatever the client is.
func TestCommandsNameTheRedis(t *testing.T) {
	failover := redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"h:1"}, Username: "u", Password: "secret"}
	for _, c := range []struct {
		rdb  redis.UniversalClient
		opts []Option
		rrl  string
		cli  string // of the server n:7
	}{
		{redis.NewClient(&redis.Options{Addr: "h:1", DB: 2, Username: "u", Password: "secret"}), nil,
			"rrl heal a --redis redis://h:1/2 --user u", "redis-cli -h n -p 7 -n 2 --user u unlink a"},
		{redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"h:1", "h:2"}, Password: "secret"}), nil,
			"rrl heal a --redis 'redis+cluster://h:1?addr=h%3A2' --user default", "redis-cli -h n -p 7 -c unlink a"},
		{redis.NewFailoverClient(&failover), nil,
			"rrl heal a --redis redis://n:7/0 --user u", "redis-cli -h n -p 7 -n 0 --user u unlink a"},
		{redis.NewFailoverClient(&failover), []Option{WithRedisURL("redis+sentinel://v:secret@h:1/0?master_name=m"), WithTLSFiles("/ca", "/cert", "/key")},
			"rrl heal a --redis 'redis+sentinel://v@h:1/0?master_name=m' --user u --tls-ca /ca --tls-cert /cert --tls-key /key",
			"redis-cli -h n -p 7 -n 0 --user u --cacert /ca --cert /cert --key /key unlink a"},
		{redis.NewClient(&redis.Options{Network: "unix", Addr: "/tmp/s", DB: 1}), nil,
			"rrl heal a --redis 'unix:///tmp/s?db=1' --user default", "redis-cli -s /tmp/s -n 1 unlink a"},
		{redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "n:7", "b": "n:8"}, DB: 3}), nil,
			"rrl heal a --redis redis://n:7/3 --user default", "redis-cli -h n -p 7 -n 3 unlink a"},
	} {
		h := redistest.Must(New(c.rdb, c.opts...))(t)
		to := h.to.At("n:7")
		require.EqualValues(t, c.rrl, to.Command("heal", []string{"a"}))
		require.EqualValues(t, c.cli, to.RedisCLI("unlink", "a"))
		require.NoError(t, h.Close())
		require.NoError(t, c.rdb.Close())
	}
	_, err := New(redis.NewClient(&redis.Options{Addr: "h:1"}), WithRedisURL("http://u:secret@h"))
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	require.NotContains(t, err.Error(), "secret")
}

// TestCommandsRunAsTheyStand checks the commands that a page gives to copy: of a PER_CLIENT limiter only a client can be watched, and
// a name may look like a flag.
func TestCommandsRunAsTheyStand(t *testing.T) {
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	of := " --redis redis://" + rdb.Options().Addr + "/0 --user default"
	limiter(t, rdb, name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour}, 1)
	p := s.get("limiter?name=" + name)
	require.Contains(t, p.body, "<code class=\"long\">rrl inspect "+name+of+" --clients</code>")
	require.NotContains(t, p.body, "<code class=\"long\">rrl watch")
	require.Contains(t, s.get("limiter?name="+name+"&client=c").body, "<code class=\"long\">rrl watch "+name+of+" --client c</code>")
}

// TestNothingIsHealthyUnseen stops a server, alone and in a cluster: the page says that it is not known whether all is healthy,
// also where it has said that it is a moment ago. How long it looks until then is up to the machine, but it ends.
func TestNothingIsHealthyUnseen(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	alone, cluster := redistest.Start(t, "--appendonly", "yes"), redistest.StartCluster(t)
	for _, on := range []struct {
		rdb  redis.UniversalClient
		stop *redistest.Server
	}{
		{alone.Client(t), alone},
		{cluster.Client(t), cluster.Nodes()[1]},
	} {
		for i := range 15 {
			require.NoError(t, on.rdb.HSet(t.Context(), fmt.Sprint("limiter", i), "rate", 5, "interval", 1000, "type", 0).Err())
		}
		verdict := func(h *Handler, target string) string {
			s := &site{T: t, Handler: h}
			p := s.get(target)
			for ; strings.Contains(p.body, "data-looking"); p = s.get("doctor") {
				time.Sleep(50 * time.Millisecond)
			}
			return p.body
		}
		open := func() *Handler {
			h := redistest.Must(New(on.rdb))(t)
			t.Cleanup(func() { _ = h.Close() })
			return h
		}
		h := open()
		require.Contains(t, verdict(h, "doctor"), "<b>Healthy</b>")
		require.Contains(t, verdict(h, "limiter?name=limiter1&check=1"), "Nothing was found.")
		on.stop.Pause()
		h.rounds.ended = time.Time{} // as after five minutes
		for _, h := range []*Handler{h, open()} {
			body := verdict(h, "doctor")
			require.NotContains(t, body, "Healthy", "%s", body)
			require.Contains(t, body, "no reply within")
		}
		on.stop.Resume()
	}
}

// TestWrongTypeIsNoLargeSet shows a limiter whose calls fail: the page says why it does not know what is left.
func TestWrongTypeIsNoLargeSet(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, name string) {
		for _, suffix := range []string{"value", "permits"} {
			s.do("del", "{"+name+"}:"+suffix)
			s.do("rpush", "{"+name+"}:"+suffix, "x")
			body := s.get("limiter?name=" + name).body
			require.Contains(t, body, "every call fails: wrong type")
			require.NotContains(t, body, "too large")
			require.Contains(t, s.get("limiter?lang=zh&name="+name).body, "每次调用都失败")
			s.do("del", "{"+name+"}:"+suffix)
		}
	})
}
