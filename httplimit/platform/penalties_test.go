// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A platform is a base that notes when requests arrive, and answers what it is told to.
type platform struct {
	sent    atomic.Int64
	arrived grantlog.Ledger
	answer  func(*http.Request) *http.Response // nil: 200
	delay   func(n int) time.Duration          // of the nth request on its way
}

func (p *platform) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.delay != nil {
		time.Sleep(p.delay(int(p.sent.Add(1)) - 1))
	}
	p.arrived.Add(grantlog.At(time.Now(), 1))
	if p.answer != nil {
		if resp := p.answer(r); resp != nil {
			return resp, nil
		}
	}
	return respond(200, "application/json", `{"errcode":0,"errmsg":"ok"}`), nil
}

// TestMarginHoldsAgainstDelays: four times as many requests as may go are there at once, and their delays on the way are the
// worst that differ by 49 ms or 500 ms. By default the platform sees no more than 20 in a second, at 95 % of the rate, where they
// differ by less than 50 ms, and a margin of what Transport.DelaySpread returns is enough for others.
func TestMarginHoldsAgainstDelays(t *testing.T) {
	for name, c := range map[string]struct {
		late  time.Duration
		opts  []Option
		worst int64
		took  time.Duration
	}{
		"covered":     {49 * time.Millisecond, nil, 20, 3*1050*time.Millisecond + 19*50*time.Millisecond},
		"no margin":   {49 * time.Millisecond, []Option{WithMargin(0), WithMinGap(ScopeAppAPI, 0)}, 40, 3 * time.Second},
		"not covered": {500 * time.Millisecond, nil, 29, 3*1050*time.Millisecond + 19*50*time.Millisecond},
		"by Spread":   {500 * time.Millisecond, []Option{WithMargin(501 * time.Millisecond)}, 20, 3*1501*time.Millisecond + 19*50*time.Millisecond},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			// The 20 of a second are late, the 20 of the next are not.
			p := &platform{delay: func(n int) time.Duration { return c.late * time.Duration(1-n/20%2) }}
			var left atomic.Int64 // when the last one did
			tr := w.transport(p, httplimit.WithProfile(DingTalk(w.key, append(c.opts, WithEgress(w.key))...)), httplimit.WithEvents(func(e httplimit.Event) {
				left.Store(int64(w.elapsed()))
			}))
			var all sync.WaitGroup
			for range 80 {
				all.Go(func() { get(t, tr, "https://oapi.dingtalk.com/user/get") })
			}
			all.Wait()
			require.Equal(t, c.worst, p.arrived.Told().Most(time.Second), name)
			require.Equal(t, c.took, time.Duration(left.Load()), name)
			spread, _ := tr.DelaySpread("oapi.dingtalk.com")
			require.Equal(t, c.late, spread, name)
		})
	}
}

// A send is a request of a step table, and how long it has to wait.
type send struct {
	url  string
	wait time.Duration
}

// penalty lets the platform throttle one request and sees how long others would have to wait. Nobody waits:
// a bubble takes a second's look at Redis for each second of the month.
func penalty(t *testing.T, profile func(key string) httplimit.Profile, first string, answer *http.Response, then ...send) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		p := &platform{answer: func(*http.Request) *http.Response { r := answer; answer = nil; return r }}
		tr := w.transport(p, httplimit.WithProfile(profile(w.key)), httplimit.WithMaxWait(0))
		get(t, tr, strings.ReplaceAll(first, "KEY", httplimit.Hash(w.key)))
		for _, s := range then {
			var wait time.Duration
			resp, err := tr.RoundTrip(request(t, "GET", strings.ReplaceAll(s.url, "KEY", httplimit.Hash(w.key)), nil))
			if err != nil {
				var refused *httplimit.Error
				require.ErrorAs(t, err, &refused)
				require.Equal(t, httplimit.ReasonCoolDown, refused.Reason)
				wait = refused.Wait
			} else {
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, s.wait, wait, s.url)
		}
	})
}

func TestDingTalkPenalties(t *testing.T) {
	const (
		user    = "https://oapi.dingtalk.com/topapi/v2/user/get"
		dept    = "https://oapi.dingtalk.com/topapi/v2/department/get"
		robot   = "https://oapi.dingtalk.com/robot/send?access_token=KEY1"
		another = "https://oapi.dingtalk.com/robot/send?access_token=KEY2"
	)
	profile := func(opts ...Option) func(string) httplimit.Profile {
		return func(key string) httplimit.Profile {
			return DingTalk(key, append([]Option{WithEgress(key)}, opts...)...)
		}
	}
	counted := func(metered httplimit.Match) func(string) httplimit.Profile {
		return func(key string) httplimit.Profile {
			return profile(WithMonthlyQuota(inBubble, key, 5000, metered))(key)
		}
	}
	says := func(body string) *http.Response { return respond(200, "application/json", body) }
	// The bubble's clock starts at 2000-01-01 00:00 UTC, 08:00 in China.
	month := 31*24*time.Hour - 8*time.Hour

	penalty(t, profile(), user, says(`{"errcode":90018}`), send{dept, 0}, send{robot, 0}, send{user, time.Second})
	penalty(t, profile(), user, says(`{"errcode":90002}`), send{dept, 0}, send{user, time.Second})
	penalty(t, profile(), user, says(`{"errcode":90020}`), send{dept, 0}, send{user, month})
	penalty(t, profile(WithRate(ScopeAppAPI, 0, time.Second)), user, says(`{"errcode":90020}`), send{dept, time.Second})
	penalty(t, profile(), robot, says(`{"errcode":90020}`), send{user, 0}, send{another, 0}, send{robot, month})
	penalty(t, profile(), robot, says(`{"errcode":90018}`), send{another, 0}, send{robot, time.Second})
	penalty(t, profile(), robot, says(`{"errcode":130101}`), send{user, 0}, send{another, 0}, send{robot, 10 * time.Minute})
	penalty(t, profile(), robot, says(`{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"u","errcode":130101}`), send{user, 0}, send{robot, 10 * time.Minute})
	penalty(t, profile(), user, says(ban("5")), send{another, 5 * time.Minute})
	penalty(t, profile(), robot, says(ban("5")), send{user, 5 * time.Minute})
	penalty(t, profile(WithPenalty(ScopeIP, 7*time.Second)), user, says(ban("5")), send{dept, 7 * time.Second})
	penalty(t, profile(WithPenalty(ScopeRobot, time.Hour)), robot, says(`{"errcode":410100,"errmsg":"x"}`), send{robot, time.Hour})
	penalty(t, profile(WithPenalty(ScopeRobot, time.Hour)), robot, says(`{"errcode":410100,"title":"x"}`), send{robot, time.Second})
	penalty(t, counted(httplimit.Match{}), user, says(`{"errcode":90020}`), send{dept, month})
	metered := httplimit.Match{Patterns: []string{"/topapi/v2/user/"}}
	penalty(t, counted(metered), user, says(`{"errcode":90020}`), send{dept, 0}, send{user, month})
	penalty(t, counted(metered), user, says(`{"errcode":90002}`), send{dept, 0}, send{user, time.Second})
	penalty(t, func(key string) httplimit.Profile { return DingTalkRobot(WithEgress(key)) }, robot, says(`{"errcode":410100}`),
		send{another, 0}, send{user, 0}, send{robot, 10 * time.Minute})
	corp := WithCorp(func(r *http.Request) string { return r.URL.Query().Get("corp") })
	penalty(t, profile(corp), user+"?corp=a", says(`{"errcode":90019}`), send{user + "?corp=b", 0}, send{user + "?corp=a", time.Second})

	forbidden := respond(403, "application/json", `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"}`)
	penalty(t, profile(), "https://api.dingtalk.com/v1.0/contact/users/a", forbidden, send{user, 0}, send{"https://api.dingtalk.com/v1.0/contact/users/b", time.Second})
}

// TestEveryProfileObeysHTTP: a 429 with Retry-After, or a 503, cools the request's limiters down whatever the platform's
// own refusals look like, on each of the platform's hosts.
func TestEveryProfileObeysHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		profile func(key string) httplimit.Profile
		urls    []string
	}{
		"dingtalk": {func(key string) httplimit.Profile { return DingTalk(key, WithEgress(key)) }, []string{
			"https://oapi.dingtalk.com/topapi/v2/user/get", "https://api.dingtalk.com/v1.0/contact/users/a",
			"https://oapi.dingtalk.io/topapi/v2/user/get", "https://api.dingtalk.io/v1.0/contact/users/a",
			"https://oapi.dingtalk.com/robot/send?access_token=KEY", "https://oapi.dingtalk.io/robot/send?access_token=KEY"}},
		"dingtalk, month": {func(key string) httplimit.Profile {
			return DingTalk(key, WithEgress(key), WithMonthlyQuota(inBubble, key, 5000, httplimit.Match{}))
		}, []string{"https://api.dingtalk.com/v1.0/contact/users/a"}},
		"dingtalk, no address": {func(key string) httplimit.Profile {
			return DingTalk(key, WithRate(ScopeIP, 0, 20*time.Second))
		}, []string{"https://api.dingtalk.com/v1.0/contact/users/a"}},
		"dingtalk robot": {func(key string) httplimit.Profile { return DingTalkRobot(WithEgress(key)) },
			[]string{"https://oapi.dingtalk.com/robot/send?access_token=KEY", "https://oapi.dingtalk.io/robot/send?access_token=KEY"}},
		"wecom": {func(key string) httplimit.Profile { return WeCom(key) },
			[]string{"https://qyapi.weixin.qq.com/cgi-bin/user/get", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=KEY"}},
		"feishu": {func(key string) httplimit.Profile { return Feishu(key) },
			[]string{"https://open.feishu.cn/open-apis/im/v1/chats", "https://open.larksuite.com/open-apis/im/v1/chats"}},
		"github": {func(key string) httplimit.Profile { return GitHub(key) }, []string{"https://api.github.com/repos/o/r"}},
	} {
		for _, url := range c.urls {
			for _, status := range []int{429, 503} {
				refusal := respond(status, "text/html", "<html>busy</html>")
				refusal.Header.Set("Retry-After", "77")
				wait := 77 * time.Second
				t.Run(fmt.Sprint(name, " ", status, " ", url), func(t *testing.T) { penalty(t, c.profile, url, refusal, send{url, wait}) })
			}
		}
	}
}

func TestOtherPenalties(t *testing.T) {
	const (
		weCom  = "https://qyapi.weixin.qq.com/cgi-bin/user/get"
		feishu = "https://open.feishu.cn/open-apis/im/v1/chats"
		github = "https://api.github.com/repos/o/r"
	)
	says := func(status int, body string, header ...string) *http.Response {
		r := respond(status, "application/json", body)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	wx := func(key string) httplimit.Profile { return WeCom(key) }
	penalty(t, wx, weCom, says(200, `{"errcode":45009}`), send{"https://qyapi.weixin.qq.com/cgi-bin/user/list", 0}, send{weCom, time.Minute})
	penalty(t, wx, weCom, says(200, `{"errcode":45033}`), send{weCom, time.Second})
	// Not a limiter that somebody else's rule adds.
	require.Equal(t, ScopeCorpAPI, httplimit.First(WeCom("a").Rules[0].Detectors...).Detect(detection{Body: `{"errcode":45033}`}.Response()).Scope)
	penalty(t, wx, "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=KEY", says(200, `{"errcode":45009}`), send{weCom, 0}, send{"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=KEY", time.Minute})
	fs := func(key string) httplimit.Profile { return Feishu(key) }
	penalty(t, fs, feishu, says(429, `{"code":99991400}`, "x-ogw-ratelimit-reset", "52"), send{"https://open.feishu.cn/open-apis/im/v1/messages", 0}, send{feishu, 52 * time.Second})
	penalty(t, fs, feishu, says(429, ``, "Retry-After", "7"), send{feishu, 7 * time.Second})
	gh := func(key string) httplimit.Profile { return GitHub(key) }
	penalty(t, gh, github, says(403, `{}`, "x-ratelimit-remaining", "0", "x-ratelimit-reset", "946685400"), send{github + "/issues", 10 * time.Minute})
	penalty(t, gh, github, says(403, `{}`, "retry-after", "30"), send{github + "/issues", 30 * time.Second})
	penalty(t, gh, github, says(403, `{}`), send{github + "/issues", 0})
}

// What looks like a penalty and is none is told; what is not looked into is not, and is not read ahead.
func TestIgnoredPenaltiesAreTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		resp := respond(200, "text/plain", ban("5"))
		tr := w.transport(base(func(*http.Request) (*http.Response, error) { return resp, nil }),
			rules(w.limit("l", 99, time.Second)), httplimit.WithDetectors(httplimit.HTTPDetector(), DingTalkBanDetector(), DingTalkOldDetector()))
		get(t, tr, "http://x/")
		events := w.taken()
		require.Len(t, events, 2)
		e := events[1]
		require.Equal(t, httplimit.EventIgnored, e.Kind)
		require.EqualValues(t, banReason, e.Reason)
		require.EqualError(t, e.Err, `httplimit: no rejection: content type "text/plain"`)
		require.Equal(t, 200, e.Status)
		require.Equal(t, "x", e.Host)

		resp = respond(200, "application/json", ban("5"))
		resp.Header.Set("Content-Disposition", "attachment")
		body := resp.Body
		require.Equal(t, body, redistest.Must(tr.RoundTrip(request(t, "GET", "http://x/", nil)))(t).Body)
		require.Equal(t, []httplimit.EventKind{httplimit.EventGranted}, w.kinds())

		resp = respond(200, "application/json", `{"errcode":90020,"errmsg":"x","title":"x"}`)
		get(t, tr, "http://x/")
		events = w.taken()
		require.Equal(t, httplimit.EventThrottled, events[1].Kind)
		require.Zero(t, events[1].Until)
		require.Equal(t, 31*24*time.Hour-8*time.Hour, events[1].Asked.Sub(w.epoch))
		require.Equal(t, time.Second, w.until("l"))
	})
}

// A verdict that is not trusted so far is no ground to send a request again: it may have been executed.
func TestDoubtedAnswersAreNotRetried(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sent := 0
		tr := w.transport(base(func(*http.Request) (*http.Response, error) {
			sent++
			return respond(200, "application/json", `{"errcode":90020,"errmsg":"x","title":"x"}`), nil
		}), rules(w.limit("l", 99, time.Second)), httplimit.WithDetectors(DingTalkOldDetector()), httplimit.WithRetry(3))
		get(t, tr, "http://x/")
		require.Equal(t, 1, sent)
	})
}

// TestMonthBeginsAnewInChina: what is used up comes back on the first of the month in China, for all processes, and at once when more was bought.
func TestMonthBeginsAnewInChina(t *testing.T) {
	if !redistest.TTLsAreVirtual() {
		t.Skip("the server's month is another")
	}
	const user = "https://oapi.dingtalk.com/topapi/v2/user/get"
	inWorld(t, func(t *testing.T, w *world) {
		transport := func(calls int64) *httplimit.Transport {
			return w.transport(base(ok), httplimit.WithMaxWait(0),
				httplimit.WithProfile(DingTalk(w.key, WithMonthlyQuota(w.rdb, "org", calls, httplimit.Match{}))))
		}
		rejected := func(tr *httplimit.Transport) time.Duration {
			_, err := tr.RoundTrip(request(t, "GET", user, nil))
			var e *httplimit.Error
			require.ErrorAs(t, err, &e)
			return e.Wait
		}
		old, bought := transport(2), transport(4)
		get(t, old, user)
		time.Sleep(20 * 24 * time.Hour) // the bubble begins on January 1, 08:00 in China
		get(t, old, user)
		require.Equal(t, 11*24*time.Hour-8*time.Hour, rejected(old))
		time.Sleep(time.Second)
		get(t, bought, user)

		quota := redistest.Must(DingTalkMonth(w.rdb, 2))(t)
		require.NoError(t, quota.For("org").Reset(t.Context()))
		time.Sleep(time.Second)
		get(t, old, user)
		time.Sleep(time.Second)
		get(t, old, user)
		time.Sleep(rejected(old))
		get(t, old, user)
	})
}
