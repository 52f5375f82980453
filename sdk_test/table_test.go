// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/bwmarrin/discordgo"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	hosts "github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/httplimit/rulefile"
	"github.com/goredisson/ratelimiter/internal/http/gateway"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A statusError is what is made of a response that an SDK does not take for an error.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// A platform is a server that all hosts lead to, and the Transport to it, with permits for so many requests.
type platform struct {
	*httplimit.Transport

	mu       sync.Mutex
	served   int
	rejected int
}

func newPlatform(t *testing.T, permits int64, interval time.Duration, form httplimit.RejectionForm, opts ...httplimit.Option) *platform {
	p := &platform{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.served++
		p.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reply) // fails only when the SDK has gone, which it will say
	}))
	t.Cleanup(server.Close)
	to, err := url.Parse(server.URL)
	require.NoError(t, err)
	direct := server.Client().Transport // not http.DefaultTransport, which an SDK may have us replace
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
		return direct.RoundTrip(r)
	})
	client := newClient(t)
	rule := httplimit.Rule{Name: "all", Limits: []httplimit.Limit{{Name: "all", Rate: ratelimiter.Rate{Permits: max(permits, 1), Interval: interval}}}, Rejection: form}
	p.Transport, err = httplimit.New(client, append([]httplimit.Option{httplimit.WithBase(base), httplimit.WithRules(rule), httplimit.WithEvents(p.event)}, opts...)...)
	require.NoError(t, err)
	if permits == 0 {
		resp, err := (&http.Client{Transport: p}).Get("https://api.example.com/")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		p.served = 0
	}
	return p
}

func newClient(t *testing.T) *ratelimiter.Client {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	client, err := ratelimiter.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func (p *platform) event(e httplimit.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Kind == httplimit.EventRejected {
		p.rejected++
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// told says whether a caller of the SDK finds the reason in its error.
func told(err error) string {
	var e *httplimit.Error
	is, as := errors.Is(err, httplimit.ErrRejected), errors.As(err, &e)
	switch {
	case is && as && e.Wait > 0 && e.Limiter == "all":
		return "yes"
	case is || as:
		return "in part"
	}
	return "**no**"
}

// row tries an SDK in every mode, and returns its row of the table.
func (s sdk) row(t *testing.T) string {
	const patience = time.Second
	ctx := t.Context()
	granted := newPlatform(t, 100, time.Hour, s.form)
	_ = s.call(ctx, granted.Transport) // the SDK may not like the reply, which is that of no platform
	require.Positive(t, granted.served, "a request arrives through the Transport")
	require.Zero(t, granted.rejected)

	deadline, explained := "no context", "no context"
	if !s.noContext {
		p := newPlatform(t, 0, time.Hour, s.form)
		short, cancel := context.WithTimeout(ctx, patience)
		err := s.call(short, p.Transport)
		cancel()
		require.Error(t, err)
		deadline = told(err)

		p = newPlatform(t, 0, time.Hour, s.form)
		short, cancel = context.WithTimeout(ctx, patience)
		sdkCtx, explain := httplimit.ContextWithReason(short)
		err = explain(s.call(sdkCtx, p.Transport))
		cancel()
		require.Error(t, err)
		require.Equal(t, "yes", told(err), "explained")
		require.Zero(t, p.served)
		explained = "yes"
	}

	p := newPlatform(t, 0, time.Hour, s.form, httplimit.WithMaxWait(0))
	err := s.call(ctx, p.Transport)
	require.Error(t, err)
	require.Zero(t, p.served)
	bound, sent := told(err), p.rejected

	p = newPlatform(t, 0, time.Hour, s.form, httplimit.WithMaxWait(0), httplimit.WithRejectionResponse())
	began := time.Now()
	sdkCtx, explain := httplimit.ContextWithReason(ctx)
	if s.bounded { // an hour
		var cancel context.CancelFunc
		sdkCtx, cancel = context.WithTimeout(sdkCtx, patience)
		defer cancel()
	}
	err = s.call(sdkCtx, p.Transport)
	require.Error(t, err, "a response of 429")
	require.Less(t, time.Since(began), 30*time.Second)
	response := fmt.Sprintf("`%T`", err)
	if !s.noContext {
		require.Equal(t, "yes", told(explain(err)), "explained, with a response")
	}
	return fmt.Sprintf("| %s<br>`%s` %s | %s | %s | %s | %s | %s | %d / %d | %s |\n",
		s.name, s.module, version(t, s.module), s.line, deadline, bound, explained, response, sent, p.rejected, s.traps)
}

// version returns the version of a module that go.mod asks for.
func version(t *testing.T, module string) string {
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` (\S+)`).FindSubmatch(text)
	require.NotNil(t, found, module)
	return string(found[1])
}

// TestMain lets all SDKs wait at once, however few cores there are.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(len(sdks))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const page = "../docs/sdks.md"

// TestTable checks that every SDK sends through a Transport, that ContextWithReason gives its errors their reason back, and that the
// table in docs/sdks.md says what happened. RATELIMITER_SDKS=write writes the table.
func TestTable(t *testing.T) {
	rows := make([]string, len(sdks))
	t.Run("sdks", func(t *testing.T) {
		for _, globals := range []bool{true, false} { // those that set variables come first, one after another
			for i, s := range sdks {
				if s.global != globals {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					if !s.global {
						t.Parallel()
					}
					rows[i] = s.row(t)
				})
			}
		}
	})
	table := strings.Join(rows, "")
	for _, u := range untried {
		table += fmt.Sprintf("| not tried: `%s` | not on the module proxy: %s | | | | | | |\n", u[0], u[1])
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	between := regexp.MustCompile(`(?s)(\n\|---[^\n]*\n).*?(\n\n|$)`)
	require.Len(t, between.FindAll(text, -1), 1)
	want := between.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(strings.TrimSuffix(table, "\n"), "$", "$$")+"${2}")
	if os.Getenv("RATELIMITER_SDKS") == "write" {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, string(text), want)
}

// TestDiscordSleepsForItsRejection makes a call of a discordgo with its defaults, which sends again after each
// 429, when it has slept for the retry_after of the body. With Discord's form it sends again once the permit is there.
// Its rounding down of milliseconds may cost it two requests more.
func TestDiscordSleepsForItsRejection(t *testing.T) {
	t.Parallel()
	send := func(form httplimit.RejectionForm) *platform {
		p := newPlatform(t, 0, 5*time.Second, form, httplimit.WithMaxWait(0), httplimit.WithRejectionResponse())
		session, err := discordgo.New("Bot t")
		require.NoError(t, err)
		session.Client = &http.Client{Transport: p}
		require.NoError(t, session.ChannelTyping("1"))
		require.Equal(t, 1, p.served)
		return p
	}
	own := send(hosts.DiscordRejection).rejected
	require.Positive(t, own)
	require.LessOrEqual(t, own, 3)
	byDefault := send(nil).rejected
	t.Logf("rejected in 5 s: %d with Discord's form, %d by default", own, byDefault)
	require.Greater(t, byDefault, 100*own, "the default form has no retry_after")
}

// TestDiscordBehindTheGateway is TestDiscordSleepsForItsRejection for a discordgo that calls through a gateway, whose file of
// rules names the form.
func TestDiscordBehindTheGateway(t *testing.T) {
	t.Parallel()
	client, rejected := newClient(t), atomic.Int32{}
	rules, err := rulefile.Parse([]byte(`
rules:
  - name: discord
    match: {hosts: [discord.com]}
    limits: [{name: discord, permits: 1, interval: 5s}]
    rejection: discord`))
	require.NoError(t, err)
	g, err := gateway.New(client, rules, gateway.WithMaxWait(0), gateway.WithBase(roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})))
	require.NoError(t, err)
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	session, err := discordgo.New("Bot t")
	require.NoError(t, err)
	session.Client = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Path, r.URL.Host = "http", "/"+r.URL.Host+r.URL.Path, strings.TrimPrefix(server.URL, "http://")
		r.Host = r.URL.Host
		resp, err := server.Client().Transport.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusTooManyRequests {
			rejected.Add(1)
		}
		return resp, err
	})}
	require.NoError(t, session.ChannelTyping("1"))
	require.Zero(t, rejected.Load())
	require.NoError(t, session.ChannelTyping("1"))
	require.Positive(t, rejected.Load())
	require.LessOrEqual(t, rejected.Load(), int32(3))
}
