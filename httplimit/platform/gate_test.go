// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/dinggate"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// What the documentation says that DingTalk answers is detected, from a real server under another name.
func TestGatesAnswersAreDetected(t *testing.T) {
	few := dinggate.Limits{
		AppAPI:  dinggate.Limit{Calls: 1, Window: time.Hour, Penalty: time.Hour},
		CorpAPI: dinggate.Limit{Calls: 1, Window: time.Hour, Penalty: time.Hour},
		Robot:   dinggate.Limit{Calls: 1, Window: time.Hour, Penalty: time.Hour},
	}
	only := func(f func(*dinggate.Limits)) dinggate.Option {
		l := dinggate.Limits{}
		f(&l)
		return dinggate.WithLimits(l)
	}
	ip := only(func(l *dinggate.Limits) { l.IP = dinggate.Limit{Calls: 1, Window: time.Hour, Penalty: time.Hour} })
	month := only(func(l *dinggate.Limits) { l.Month.Calls = 1 })
	for _, c := range []struct {
		name  string
		opts  []dinggate.Option
		path  string
		want  httplimit.Scope
		least time.Duration
		most  time.Duration
	}{
		{"a page", []dinggate.Option{ip}, "/user/list?access_token=app-a", ScopeIP, 5 * time.Minute, 5 * time.Minute},
		{"plain", nil, "/user/list?access_token=app-a", ScopeAppAPI, time.Second, time.Minute},
		{"top", nil, "/topapi/v2/user/get?access_token=app-a", ScopeAppAPI, time.Second, time.Minute},
		{"new", nil, "/v1.0/contact/users/me", ScopeAppAPI, time.Second, time.Second},
		{"a third party's", nil, "/user/list?access_token=isv-s@c", ScopeAppAPI, time.Second, time.Minute},
		{"month", []dinggate.Option{month}, "/user/list?access_token=app-a", ScopeAppAPI, time.Minute, 31 * 24 * time.Hour},
		{"month, new", []dinggate.Option{month}, "/v1.0/contact/users/me", ScopeAppAPI, time.Minute, 31 * 24 * time.Hour},
		{"robot", nil, "/robot/send?access_token=", ScopeRobot, 10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(dinggate.New(append([]dinggate.Option{dinggate.WithLimits(few)}, c.opts...)...))
			defer srv.Close()
			s := newStage(t, redistest.Client(t))
			s.tell(nil)
			tr := s.transport(t, httplimit.WithBase(srv.Client().Transport), httplimit.WithMaxWait(time.Second), // for the gap

				httplimit.WithProfile(DingTalk(s.key, WithEgress(s.key), WithHosts("127.0.0.1"), WithRate(ScopeRobot, 99, time.Minute))))
			path := c.path
			if c.want == ScopeRobot {
				path += s.key // a robot of its own
			}
			for range 2 {
				r := request(t, http.MethodGet, srv.URL+path, nil)
				r.Header.Set("X-Acs-Dingtalk-Access-Token", "app-a")
				resp := redistest.Must(tr.RoundTrip(r))(t)
				readAll(t, resp)
			}
			throttled, cooled := s.told(httplimit.EventThrottled), s.told(httplimit.EventCoolDown)
			require.Len(t, throttled, 1)
			require.Equal(t, c.want, throttled[0].Scope)
			require.Len(t, cooled, 1)
			left := time.Until(throttled[0].Until)
			require.LessOrEqual(t, left, c.most)
			require.Greater(t, left, c.least-time.Minute/2)
		})
	}
}
