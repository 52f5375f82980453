// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/doctor"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/survey"
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
		v := s.watch("events")
		synctest.Wait()
		require.Regexp(t, `"found":[1-9]`, v.buf.String())

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

// TestTheListOfAnEmptyRedis shows the first limiter soon after it is made.
func TestTheListOfAnEmptyRedis(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		if keys := rdb.DBSize(t.Context()).Val(); keys > 0 {
			t.Skip("others use this Redis")
		}
		s, name := newSite(t, rdb), redistest.Key(t)
		require.Contains(t, s.get("").body, "There is no limiter here.")
		time.Sleep(time.Second)
		limiter(t, rdb, name, tenAMinute)
		time.Sleep(emptyAge)
		s.get("")
		synctest.Wait()
		require.Equal(t, []string{name}, s.get("").names())
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
		for _, target := range []string{"", "limiter?name=a", "events", "page.css", "doctor", "change"} {
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

// TestPlacesOfGoneReaders checks that a reader who has gone without a word, and takes all that is written to him, loses his
// place, and that one who is there begins again.
func TestPlacesOfGoneReaders(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s := newSite(t, rdb, WithStreams(2))
		gone := []*viewer{s.watch("events"), s.watch("events?name=a")}
		synctest.Wait()
		require.Equal(t, http.StatusServiceUnavailable, s.get("events").Code)
		time.Sleep(streamLimit)
		synctest.Wait()
		require.Zero(t, s.feeds.streams)
		for _, v := range gone {
			<-v.ended
			require.True(t, strings.HasSuffix(v.buf.String(), "retry: 50\nevent: again\ndata: {}\n\n"), "the browser begins another at once")
		}
		v := s.watch("events")
		synctest.Wait()
		require.NotEmpty(t, v.events(t))
	})
}

// TestLongNamesInTheList shows that a name of a megabyte is cut in the list, and that its link is not.
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
	require.True(t, strings.HasSuffix(p.names()[0], "名…"))
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
	require.ErrorIs(t, err, ErrInvalidOption)
	require.NotContains(t, err.Error(), "secret")
}

// sentence finds English beside what is quoted and the commands: three words in a row.
var (
	sentence   = regexp.MustCompile(`[A-Za-z']+ [a-z']+ [a-z']+`)
	noSentence = regexp.MustCompile(`"[^"]*"|(rrl|redis-cli) [^；，、\p{Han}]*`)
)

// TestChineseOfTheDoctor looks in the source of the doctor for all that it says: each text has a Chinese one, with the same
// values, that is no English. What acl and drift find is of rrl doctor alone.
func TestChineseOfTheDoctor(t *testing.T) {
	texts := map[string]bool{"wait": true, doctor.NoCommand: true}
	note := func(x ast.Expr) {
		if lit, ok := x.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text := redistest.Must(strconv.Unquote(lit.Value))(t)
			if strings.Contains(text, " ") && regexp.MustCompile("[a-z]{2}").MatchString(text) && !strings.HasPrefix(text, "redis-cli --cluster check") {
				texts[text] = true
			}
		}
	}
	for _, name := range redistest.Must(filepath.Glob("../internal/doctor/*.go"))(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "access.go") {
			continue
		}
		ast.Inspect(redistest.Must(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "of" {
					note(n.Args[4])
				} else if f, ok := n.Fun.(*ast.Ident); ok && strings.Contains("say word add advise", f.Name) {
					for _, x := range n.Args {
						note(x)
					}
				} else if ok && f.Name == "counted" {
					texts["%d "+strings.Trim(n.Args[1].(*ast.BasicLit).Value, `"`)] = true
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if f, ok := to.(*ast.SelectorExpr); ok && strings.Contains("Means Java Go", f.Sel.Name) {
						note(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	require.Greater(t, len(texts), 100)
	verb := regexp.MustCompile(`%(?:\[\d+\])?[sdqv]`)
	for text := range texts {
		zh, ok := said[text]
		require.True(t, ok, "there is no Chinese for %q", text)
		require.Len(t, verb.FindAllString(zh, -1), len(verb.FindAllString(text, -1)), text)
		require.NotRegexp(t, sentence, noSentence.ReplaceAllString(zh, ""))
	}
	for text := range said {
		require.True(t, texts[text] || text == ", " || text == "; ", "the doctor does not say %q", text)
	}
}

// TestSkippedInChinese shows what could not be looked at, and why, as far as it is the doctor that says so. It looks in the
// source for each check that may not be possible.
func TestSkippedInChinese(t *testing.T) {
	source := ""
	for _, name := range append(redistest.Must(filepath.Glob("../internal/doctor/*.go"))(t), redistest.Must(filepath.Glob("../internal/survey/*.go"))(t)...) {
		source += string(redistest.Must(os.ReadFile(name))(t))
	}
	for _, m := range regexp.MustCompile(`(?:skip\(|Skip\{Check: )"([a-z-]+)"`).FindAllStringSubmatch(source, -1) {
		require.NotEmpty(t, checkNames[m[1]], m[1])
	}
	h := newSite(t, redistest.Client(t)).Handler
	for format, c := range map[string]struct{ why, want string }{
		"only the first %d limiters were looked at": {"only the first 3 limiters were looked at", "只检查了前 3 个限流器"},
		"the set of %d members is too large, or grows faster than it can be read": {
			"the set of 7 members is too large, or grows faster than it can be read", "集合有 7 个成员，过大，或增长太快来不及读取"},
		"the %d members were changed while they were read, for %v: with the permits left they may be from %d below to %d above the rate": {
			"the 7 members were changed while they were read, for 3ms: with the permits left they may be from 2 below to 1 above the rate",
			"读取用了 3ms，期间这 7 个成员有变动：它们与剩余许可之和比速率最多少 2 个，最多多 1 个"},
		"the keys of %q change their types faster than they can be read": {
			`the keys of "a" change their types faster than they can be read`, `"a" 的键的类型变化太快，来不及读取`},
		"%d names cannot be read; the first is %w": {`2 names cannot be read; the first is "a": EOF`, `有 2 个名字无法读取；第一个是 "a": EOF`},
		"no reply within %v":                       {"no reply within 1.5s", "1.5s 内没有响应"},
		"shards of the ring are down":              {"shards of the ring are down: 1 of 3", "环的 3 个分片中有 1 个停机"},
		"func oneLine(err error) string":           {"NOPERM no", "NOPERM no"},
	} {
		require.Contains(t, source, format)
		r := &doctor.Report{Skipped: []doctor.Skip{{Check: "find", Limiter: "a", Node: "n:1", Why: c.why}}}
		require.Equal(t, []string{"查找 a n:1: " + c.want}, h.reportOf(&pageView{Lang: "zh"}, r, false).Skipped)
		require.Equal(t, []string{"find a n:1: " + c.why}, h.reportOf(&pageView{Lang: "en"}, r, false).Skipped)
	}
}

// TestFindingsInChinese has limiters with findings of many checks, whose values are in Chinese, too.
func TestFindingsInChinese(t *testing.T) {
	rdb, ctx := redistest.Client(t), t.Context()
	s, base := newSite(t, rdb), redistest.Key(t)
	do := s.do
	for check, c := range map[string]struct {
		broken func(name, value, permits string)
		want   string
	}{
		"surplus":    {func(_, value, _ string) { do("set", value, 500) }, "剩余 500 个，集合中 2 个，比速率 10 多 492 个许可"},
		"stuck":      {func(_, value, permits string) { do("set", value, 0); do("del", permits) }, "10 个许可中剩余 0 个，没有在用的"},
		"value":      {func(_, value, _ string) { do("del", value) }, "没有剩余许可的值，而 10 个许可中有 2 个在用"},
		"malformed":  {func(name, _, _ string) { do("hset", name, "rate", "x") }, `rate 的值是 "x"`},
		"remains":    {func(name, _, _ string) { do("del", name) }, "留下的键有 1 个成员，永不过期"},
		"wrong-type": {func(_, _, permits string) { do("del", permits); do("lpush", permits, 1) }, "的类型是 list，应为 zset"},
		"layouts":    {func(_, _, permits string) { do("zadd", permits, 1, "x") }, "（未知版本），1 个"},
		"other-type": {func(name, _, _ string) { do("hset", name, "type", 1) }, "却留有 OVERALL 的键，其中有 1 个成员"},
		"writers":    {func(string, string, string) {}, "1 个成员由 Go 写入；哈希由 Redisson 3.38.0 及以后或 Go 写入"},
	} {
		name := base + check
		limiter(t, rdb, name, ratelimiter.Rate{Permits: 10, Interval: time.Hour}, 2)
		c.broken(name, "{"+name+"}:value", "{"+name+"}:permits")
		r := redistest.Must(s.doctorOf().Limiter(ctx, name))(t)
		var found []string
		for _, f := range r.Findings {
			x := s.finding(&pageView{Lang: "zh"}, f)
			if f.Check == check {
				found = append(found, x.Found)
			}
			for _, text := range []string{x.Found, x.Fix, x.Means, x.Java, x.Go} {
				require.NotRegexp(t, sentence, noSentence.ReplaceAllString(text, ""), text)
				require.NotContains(t, text, "%!")
			}
			require.Equal(t, survey.Visible(f.Found), s.finding(&pageView{Lang: "en"}, f).Found)
		}
		require.Len(t, found, 1, check)
		require.Contains(t, found[0], c.want)
	}
}
