// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A site is a Handler with a Redis, asked without a network.
type site struct {
	*testing.T
	*Handler
	rdb *redis.Client
}

func newSite(t *testing.T, rdb *redis.Client, opts ...Option) *site {
	t.Helper()
	h := redistest.Must(New(rdb, opts...))(t)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return &site{t, h, rdb}
}

// inBubble runs f in virtual time with a site and the name of a limiter of 10 permits a minute, of which 4 are in use.
func inBubble(t *testing.T, f func(t *testing.T, s *site, name string), opts ...Option) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s, name := newSite(t, rdb, opts...), redistest.Key(t)
		limiter(t, rdb, name, tenAMinute, 2, 2)
		f(t, s, name)
	})
}

// do sends a command to the Redis itself.
func (s *site) do(args ...any) {
	s.Helper()
	require.NoError(s, s.rdb.Do(s.Context(), args...).Err(), "%v", args)
}

// A page is a reply.
type page struct {
	*httptest.ResponseRecorder
	body string
}

func (s *site) ask(r *http.Request) page {
	s.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return page{w, w.Body.String()}
}

func (s *site) get(target string, header ...string) page {
	s.Helper()
	r := httptest.NewRequest(http.MethodGet, "/limiters/"+target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return s.ask(r)
}

// names returns the limiters that a list shows.
func (p page) names() (list []string) {
	for _, m := range regexp.MustCompile(`<th scope="row" class="name"><a href="[^"]*" data-key="[^"]*">([^<]*)</a>`).FindAllStringSubmatch(p.body, -1) {
		list = append(list, html.UnescapeString(m[1]))
	}
	return list
}

// link returns the address of the first link whose tag matches a pattern.
func (p page) link(t testing.TB, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(`<a[^>]*` + pattern + `[^>]* href="([^"]*)"|<a href="([^"]*)"[^>]*` + pattern).FindStringSubmatch(p.body)
	require.NotNil(t, m, "no link %s in %s", pattern, p.body)
	return strings.TrimPrefix(html.UnescapeString(m[1]+m[2]), "./")
}

// limiter makes a limiter with some grants.
func limiter(t testing.TB, rdb *redis.Client, name string, rate ratelimiter.Rate, grants ...int64) {
	t.Helper()
	c := clienttest.New(t, rdb, ratelimiter.WithClientID("client-1"))
	defer func() { _ = c.Close() }()
	l := c.RateLimiter(name)
	require.NoError(t, l.SetRate(t.Context(), rate))
	for _, n := range grants {
		require.NoError(t, l.Acquire(t.Context(), n))
	}
}

var tenAMinute = ratelimiter.Rate{Permits: 10, Interval: time.Minute}

// hold reads everything that a page could have changed.
func hold(t testing.TB, rdb *redis.Client, pattern string) string {
	t.Helper()
	var all []string
	ctx := t.Context()
	for _, key := range redistest.Must(rdb.Keys(ctx, pattern).Result())(t) {
		all = append(all, fmt.Sprint(key, rdb.HGetAll(ctx, key).Val(), rdb.Get(ctx, key).Val(), rdb.ZRangeWithScores(ctx, key, 0, -1).Val()))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func TestList(t *testing.T) {
	rdb := redistest.Client(t)
	s, base := newSite(t, rdb), redistest.Key(t)
	limiter(t, rdb, base+"orders", tenAMinute, 2, 2, 2)
	limiter(t, rdb, base+"full", ratelimiter.Rate{Permits: 6, Interval: time.Hour, KeepAlive: 2 * time.Hour}, 6)
	limiter(t, rdb, base+"users", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: 90 * time.Minute})
	s.do("hset", base+"stuck", "rate", 5, "interval", 1000, "type", 0)
	s.do("set", "{"+base+"stuck}:value", 0)
	before := hold(t, rdb, "*"+base+"*")
	for query, want := range map[string]string{
		"q=BASE": "stuck full orders users", "sort=name&q=BASE": "full orders stuck users", "only=limited&q=BASE": "stuck full",
		"sort=wait&q=BASE": "stuck full orders users", "sort=name&up=1&q=BASE": "users stuck orders full",
		"q=" + strings.ToUpper(base) + "*R*S": "orders users", // a part, another part, in any case
	} {
		p := s.get("?" + strings.ReplaceAll(query, "BASE", base))
		require.Equal(t, http.StatusOK, p.Code)
		require.Equal(t, want, strings.ReplaceAll(strings.Join(p.names(), " "), base, ""), query)
	}
	body := s.get("?q=" + base).body
	for _, want := range []string{"10/1m", "6/1h", "PER_CLIENT", `<i class="tag bad">stuck</i>`, "Go", "1–4 of 4", `width="60"`} {
		require.Contains(t, body, want)
	}
	require.Regexp(t, `<td class="num wait" data-label="Wait">(59m|1h)`, body)
	require.Contains(t, s.get("?q=no-such").body, "No limiter matches.")
	require.Equal(t, before, hold(t, rdb, "*"+base+"*"), "looking writes nothing")
}

// TestHeaders checks that no page can load or run anything from elsewhere, and has no script and no style of its own.
func TestHeaders(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, name string) {
		for _, target := range []string{"", "limiter?name=" + name, "limiter?name=" + name + "&check=1", "limiter", "doctor", "page.css", "page.js", "icon.svg", "nothing", "change"} {
			p := s.get(target)
			h := p.Header()
			require.Equal(t, policy, h.Get("Content-Security-Policy"), target)
			require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
			require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.NotEmpty(t, h.Get("Content-Type"))
			if !strings.HasPrefix(h.Get("Content-Type"), "text/html") {
				continue
			}
			require.NotRegexp(t, `(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script(?: [^>]*)?>[^<]`, p.body, target)
			for _, m := range regexp.MustCompile(`(?:src|href|action)="([^"]*)"`).FindAllStringSubmatch(p.body, -1) {
				require.NotRegexp(t, `^(?:[a-z]+:|/)`, m[1], "%s links to itself only, without a prefix", target)
			}
			require.Equal(t, "no-store", h.Get("Cache-Control"))
		}
		require.Contains(t, s.get("page.css?v="+assetHash).Header().Get("Cache-Control"), "immutable")
		require.Equal(t, "no-store", s.get("page.css?v=old").Header().Get("Cache-Control"))
		require.Equal(t, http.StatusNotFound, s.get("nothing").Code)
		require.Equal(t, http.StatusBadRequest, s.get("limiter").Code)
		p := s.ask(httptest.NewRequest(http.MethodDelete, "/", nil))
		require.Equal(t, http.StatusMethodNotAllowed, p.Code)
		require.Equal(t, "GET, HEAD", p.Header().Get("Allow"))
	}, WithWrites(writeToken))
}

// hostile are names that others can choose.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'; alert(1); //`, "a\x1b[31mred\x1b[0m", "nul\x00 newline\n tab\t", "\u202eesrever\u2066",
	"\xff\xfe no utf-8", "{{.}}", "../../etc", "a?b=c&d#e%41", " spaces  twice ", "名字", "</title><script>", "javascript:alert(1)", "\u2028line",
}

func TestNamesAreEscaped(t *testing.T) {
	rdb := redistest.Client(t)
	s, base := newSite(t, rdb), redistest.Key(t)
	for _, name := range hostile {
		limiter(t, rdb, base+name, tenAMinute, 1)
		s.do("hset", base+name, "evil"+name, name)
	}
	bad := regexp.MustCompile("[\x00-\x09\x0b-\x1f\x7f\u0080-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]|<script>|<img|onerror=alert\\(1\\)>")
	list := s.get("?q=" + url.QueryEscape(base))
	require.Len(t, list.names(), len(hostile), list.body)
	require.Empty(t, bad.FindString(list.body))
	require.Contains(t, list.body, `\x1b[31mred`)
	require.Contains(t, list.body, `\u202eesrever`)
	require.Contains(t, list.body, `\xff\xfe no utf-8`)
	for _, m := range regexp.MustCompile(`<th scope="row" class="name"><a href="([^"]*)"`).FindAllStringSubmatch(list.body, -1) {
		target := html.UnescapeString(m[1])
		p := s.get(target)
		require.Equal(t, http.StatusOK, p.Code, target)
		require.Contains(t, p.body, "9", "the link leads to the limiter of that name: %s", target)
		require.Contains(t, p.body, "of 10", target)
		require.Empty(t, bad.FindString(p.body), target)
		if strings.Contains(target, "%FF") && redistest.TTLsAreVirtual() {
			continue // miniredis panics at such a pattern of SCAN
		}
		require.Empty(t, bad.FindString(s.get(target+"&check=1").body), target)
	}
	p := s.get("limiter?name=" + url.QueryEscape(base+"\x1b[2J<script>") + "&client=" + url.QueryEscape("<script>\x1b"))
	require.Equal(t, http.StatusNotFound, p.Code)
	require.Empty(t, bad.FindString(p.body))
	require.Empty(t, bad.FindString(s.get("?q="+url.QueryEscape(`"><script>`+"\x1b")+"&only=<script>&sort=<script>&lang=<script>").body))
}

func TestLimiterPage(t *testing.T) {
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	limiter(t, rdb, name, tenAMinute, 2, 2)
	now := rdb.Time(t.Context()).Val()
	java := "\x08abcdefgh\x03\x00\x00\x00" // as Redisson 3.17 writes it
	s.do("zadd", "{"+name+"}:permits", now.Add(-30*time.Second).UnixMilli(), java)
	s.do("set", "{"+name+"}:value", 3)
	p := s.get("limiter?name=" + url.QueryEscape(name))
	require.Equal(t, http.StatusOK, p.Code)
	for _, want := range []string{
		`<span class="value" id="left">3</span>`, "of 10", "10 permits in any 1m", "granted at once", "{" + name + "}:permits", "08616263646566676803000000",
		"Permits in the last 1m: 4 by Go, 3 by Java.", "1 × Redisson 3.17.0 to 3.20 (Bc0I/13)", "2 × Go (Bc0I/21 Go)", `class="java"`, `class="go"`,
		"rrl inspect " + name + " --redis redis://" + rdb.Options().Addr + "/0 --user default --members", "rate = 10",
	} {
		require.Contains(t, html.UnescapeString(p.body), want)
	}
	require.NotContains(t, p.body, `<form method="post"`)
	require.NotContains(t, p.body, `class="finding`)

	s.do("set", "{"+name+"}:value", 1)
	p = s.get("limiter?name=" + name + "&check=1")
	require.Contains(t, p.body, "1 left and 7 in the set make 8 permits, 2 less than the rate of 10")
	require.Contains(t, p.body, `<code class="fix long">rrl heal `+name+` --redis redis://`+rdb.Options().Addr+`/0 --user default --write</code> <button type="button" class="copy"`)

	s.do("zadd", "{"+name+"}:permits", now.Add(-30*time.Hour).UnixMilli(), java)
	require.Contains(t, s.get("limiter?name="+name).body, now.UTC().Add(-30*time.Hour).Format("2006-01-02 "), "a time alone does not tell the day")
	s.do("hset", name, "rate", "x")
	require.Contains(t, s.get("limiter?name="+name).body, `<p class="empty bad">ratelimiter: malformed limiter: rate is &#34;x&#34;</p>`)
	p = s.get("limiter?name=" + name + "x")
	require.Equal(t, http.StatusNotFound, p.Code)
	require.Contains(t, p.body, "There is no limiter of this name")
}

func TestClients(t *testing.T) {
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	limiter(t, rdb, name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour}, 6)
	p := s.get("limiter?name=" + name)
	require.Contains(t, p.body, "each client has its own")
	p = s.get(p.link(t, `class="button"`)) // the checks
	require.Contains(t, p.body, "writers")
	p = s.get("limiter?clients=1&name=" + name)
	require.Contains(t, p.body, "client-1")
	p = s.get(strings.TrimPrefix(html.UnescapeString(regexp.MustCompile(`href="([^"]*client=client-1[^"]*)"`).FindStringSubmatch(p.body)[1]), "./"))
	require.Regexp(t, `<span class="value warn" id="wait">(59m\d\ds|1h00m)</span>`, p.body)
	require.Contains(t, p.body, "{"+name+"}:value:client-1")
}

// TestPagesAreStable walks all pages of 10,000 limiters, and finds each once.
func TestPagesAreStable(t *testing.T) {
	redistest.NeedReal(t) // miniredis looks at all keys for each command
	redistest.NoRace(t, "one goroutine looks")
	rdb := redistest.Start(t).Client(t)
	s, base := newSite(t, rdb), redistest.Key(t)
	const many = 10_000
	for from := 0; from < many; from += 1000 {
		p := rdb.Pipeline()
		for i := range 1000 {
			p.HSet(t.Context(), fmt.Sprintf("%s%05d", base, from+i), "rate", 5, "interval", 60000, "type", 0)
		}
		redistest.Must(p.Exec(t.Context()))(t)
	}
	first := s.get("?q=" + url.QueryEscape(base))
	for strings.Contains(first.body, "data-looking") {
		first = s.get("?q=" + url.QueryEscape(base))
	}
	var all []string
	for at := first; ; {
		all = append(all, at.names()...)
		if !strings.Contains(at.body, `rel="next"`) {
			break
		}
		require.Less(t, len(all), many, "the pages end")
		at = s.get(at.link(t, `rel="next"`))
	}
	require.Len(t, all, many)
	for i, name := range all {
		require.Equal(t, fmt.Sprintf("%s%05d", base, i), name)
	}
	require.Contains(t, s.get("?page=9999&q="+url.QueryEscape(base)).body, "9951–10000 of 10000", "a page beyond the last is the last")
	require.Equal(t, []string{base + "04242"}, s.get("?q="+url.QueryEscape(base)+"04242").names())
}

func TestLanguages(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, name string) {
		for _, c := range []struct{ target, header, lang string }{
			{"", "", "en"}, {"", "zh-CN,zh;q=0.9,en;q=0.8", "zh"}, {"", "de, en;q=0.5, zh;q=0.1", "en"}, {"", "fr", "en"}, {"", "ZH-tw", "zh"},
			{"?lang=zh", "en", "zh"}, {"?lang=en", "zh", "en"}, {"?lang=xx", "zh", "zh"}, {"", "zh;q=0, en", "en"},
		} {
			p := s.get(c.target, "Accept-Language", c.header)
			require.Contains(t, p.body, `<html lang="`+c.lang+`">`, "%v", c)
			require.Equal(t, c.lang == "zh", strings.Contains(p.body, "限流器"), "%v", c)
		}
		p := s.get("limiter?lang=zh&name=" + name)
		require.Contains(t, p.body, "任意 1m 内 10 个许可")
		require.Contains(t, p.body, "lang=en")
		require.Contains(t, s.get("?lang=zh").body, `href="limiter?lang=zh&amp;name=`, "a language that was chosen stays")
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Option{WithToken("short"), WithWrites(""), WithLogger(nil), nil} {
		_, err := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), o)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	}
}

// TestNotUsable checks what has no Redis, or was not made by New: it is an error at once, or a response, and never a panic.
func TestNotUsable(t *testing.T) {
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		h, err := New(rdb)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		require.Nil(t, h)
	}
	for _, h := range []*Handler{nil, {}} {
		for _, target := range []string{"", "limiter?name=a", "doctor", "state", "change", "page.css"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/limiters/"+target, nil))
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
		}
		require.NoError(t, h.Close())
	}
}

// TestRedisAway checks what the pages say, and what they ask for, while Redis cannot be read: since when and why. They go on when it can.
func TestRedisAway(t *testing.T) {
	var away atomic.Pointer[error]
	fail(&away, "dial tcp 192.0.2.1:6379: connect: connection refused")
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		limiter(t, rdb, name, tenAMinute, 2)
		rdb.AddHook(failing{err: &away})
		s := newSite(t, rdb)
		p := s.get("")
		require.Equal(t, http.StatusOK, p.Code)
		for _, want := range []string{"Redis cannot be read since", "connection refused", "Nothing is known of the limiters yet."} {
			require.Contains(t, p.body, want)
		}
		p = s.get("limiter?name=" + name)
		require.Equal(t, http.StatusServiceUnavailable, p.Code)
		require.Contains(t, p.body, "Nothing is known of this limiter while Redis cannot be read.")
		require.Contains(t, s.get("?lang=zh").body, "起无法读取 Redis")

		fail(&away, "")
		time.Sleep(2 * time.Second)
		p = s.get("?q=" + name)
		require.Equal(t, []string{name}, p.names())
		require.NotContains(t, p.body, "Redis cannot be read")
		one, all := s.watch("state?name="+name), s.watch("state")
		synctest.Wait()
		require.Contains(t, one.events()[0].Live, "of 10")
		require.Equal(t, []seen{{}}, all.events())

		fail(&away, "i/o timeout")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		since := time.Now().Add(-time.Second).UTC().Format("15:04:05Z")
		for _, v := range []*viewer{one, all} {
			events := v.events()
			last := events[len(events)-1]
			require.Regexp(t, "Redis cannot be read since "+since+".*i/o timeout", last.Down)
			require.Empty(t, last.Live)
		}
		time.Sleep(rowsAge)
		p = s.get("?q=" + name)
		require.Equal(t, []string{name}, p.names(), "the list stays")
		require.Contains(t, p.body, "i/o timeout")
		s.get("doctor")
		synctest.Wait()
		require.Contains(t, s.get("doctor").body, "i/o timeout")
		for _, v := range []*viewer{one, all} {
			v.events()
		}
		fail(&away, "")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, all.events()[0].Down)
		require.Contains(t, one.events()[0].Live, "of 10")
		time.Sleep(time.Second)
		s.get("doctor?again=1")
	})
}
