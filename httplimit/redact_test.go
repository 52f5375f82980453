// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

func TestRedactURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://oapi.dingtalk.com/robot/send?access_token=5e1f&timestamp=1":                     "https://oapi.dingtalk.com/robot/send?access_token=REDACTED&timestamp=REDACTED",
		"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=1-2":                               "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=REDACTED",
		"https://open.feishu.cn/open-apis/bot/v2/hook/short":                                     "https://open.feishu.cn/open-apis/bot/v2/hook/REDACTED",
		"https://open.feishu.cn/open-apis/bot/hook/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9/":        "https://open.feishu.cn/open-apis/bot/hook/REDACTED/",
		"https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX":          "https://hooks.slack.com/services/T00000000/B00000000/REDACTED",
		"https://api.telegram.org/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/sendMessage":      "https://api.telegram.org/REDACTED/sendMessage",
		"https://ghp_1:x-oauth-basic@api.github.com/repos/goredisson/ratelimiter?tokenonly#frag": "https://REDACTED@api.github.com/repos/goredisson/ratelimiter?REDACTED",
		"http://x:8080/v1.0/contact/users/zhangsan?a=1;b=2":                                      "http://x:8080/v1.0/contact/users/zhangsan?a=REDACTED&b=REDACTED",
		"mailto:somebody@example.com":                                                            "mailto:REDACTED",
	} {
		require.Equal(t, want, RedactURL(redistest.Must(url.Parse(in))(t)))
	}
}

// TestRedact: what http.Client returns has the URL in its text, and what Redact makes of it has not, however it is
// wrapped; errors.Is and errors.As go on working.
func TestRedact(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := &http.Client{Transport: w.transport(base(ok), rules(w.limit("a", 1, time.Minute)), WithMaxWait(0))}
		require.NoError(t, redistest.Must(client.Get("http://x/"))(t).Body.Close())
		_, err := client.Get("http://x/robot/send?access_token=s3cret") //nolint:bodyclose // rejected
		require.ErrorContains(t, err, "s3cret", "http.Client quotes the whole URL")
		for _, err := range []error{err, fmt.Errorf("sending: %w", err), errors.Join(context.Canceled, fmt.Errorf("sending: %w", err)),
			fmt.Errorf("%w, after %w", err, errors.New("another"))} {
			r := Redact(err)
			require.NotContains(t, r.Error(), "s3cret")
			require.NotContains(t, fmt.Sprintf("%v %+v %s %q", r, r, r, r), "s3cret")
			require.Contains(t, r.Error(), "http://x/robot/send?access_token=REDACTED")
			require.Equal(t, strings.ReplaceAll(err.Error(), "s3cret", replacement), r.Error())
			require.ErrorIs(t, r, ErrRejected)
			var rejected *Error
			require.ErrorAs(t, r, &rejected)
			require.Equal(t, w.key+"a", rejected.Limiter)
			var outer *url.Error
			require.ErrorAs(t, r, &outer)
			require.NotContains(t, outer.Error(), "s3cret")
			require.Equal(t, r.Error(), Redact(r).Error())
		}
		require.Nil(t, Redact(nil))
		plain := errors.New("plain")
		require.Same(t, plain, Redact(plain))
		_, err = url.Parse(strings.Join([]string{"http://x/%zz", "access_token=s3cret"}, "?")) // no constant: it is not a URL
		require.ErrorContains(t, err, "s3cret")
		require.NotContains(t, Redact(err).Error(), "s3cret")
	})
}
