// SPDX-License-Identifier: Apache-2.0

package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/rulefile"
	"github.com/redis/go-redis/v9"
)

// exampleClient is a limiter's client on a Redis of the examples' own.
func exampleClient() *ratelimiter.Client {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: m.Addr()}))
	if err != nil {
		panic(err)
	}
	return client
}

// platform answers whatever it is asked, or that it is asked too often.
func platform() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, `{"errcode":0}`)
	}))
}

// Two messages a minute for each token, three calls a minute in all. What cannot be sent in time is an
// error that says which limiter bound and for how long; nothing was sent then, nor spent.
func Example() {
	client := exampleClient()
	defer client.Close()
	server := platform()
	defer server.Close()

	perMinute := func(n int64) ratelimiter.Rate { return ratelimiter.Rate{Permits: n, Interval: time.Minute} }
	transport, err := httplimit.New(client, httplimit.WithMaxWait(0), httplimit.WithRules(
		httplimit.Rule{
			Match:  httplimit.Match{Patterns: []string{"POST /robot/send"}},
			Limits: []httplimit.Limit{{Name: "robot:{query.token|hash}", Rate: perMinute(2)}},
		},
		httplimit.Rule{
			Limits: []httplimit.Limit{{Name: "all", Rate: perMinute(3)}},
		},
	))
	if err != nil {
		panic(err)
	}
	httpClient := &http.Client{Transport: transport}

	for _, token := range []string{"a", "a", "a", "b", "b"} {
		resp, err := httpClient.Post(server.URL+"/robot/send?token="+token, "application/json", strings.NewReader(`{}`))
		if rejected := (*httplimit.Error)(nil); errors.As(err, &rejected) {
			fmt.Println(token, "rejected:", rejected.Reason, "of", rejected.Limiter)
			continue
		} else if err != nil {
			panic(err)
		}
		resp.Body.Close()
		fmt.Println(token, resp.StatusCode)
	}
	// Output:
	// a 200
	// a 200
	// a rejected: no permit in time of robot:ca978112ca1bbdcafac231b39a23dc4d
	// b 200
	// b rejected: no permit in time of all
}

// The platform says that it is asked too often: until the end that it names nobody in the fleet gets a
// permit. The answer itself reaches the caller.
func ExampleNew_coolDown() {
	client := exampleClient()
	defer client.Close()
	server := platform()
	defer server.Close()

	transport, err := httplimit.New(client,
		httplimit.WithMaxWait(time.Second),
		httplimit.WithEarlyRejection(),
		httplimit.WithDetectors(httplimit.HTTPDetector()),
		httplimit.WithEvents(func(e httplimit.Event) {
			if e.Kind == httplimit.EventCoolDown {
				fmt.Println("cool-down of", e.Limiter, "for", time.Until(e.Until).Round(time.Minute))
			}
		}),
		httplimit.WithRules(httplimit.Rule{
			Match:  httplimit.Match{Hosts: []string{"127.0.0.1"}}, // one host, whose word counts for the limiter
			Limits: []httplimit.Limit{{Name: "api", Rate: ratelimiter.Rate{Permits: 20, Interval: time.Second}}},
		}))
	if err != nil {
		panic(err)
	}
	httpClient := &http.Client{Transport: transport}
	resp, err := httpClient.Get(server.URL + "/busy")
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode)

	_, err = httpClient.Get(server.URL)
	fmt.Println(errors.Is(err, httplimit.ErrRejected))
	until, _ := client.RateLimiter("api").Admin().CoolDownUntil(context.Background())
	fmt.Println(time.Until(until).Round(time.Minute))
	// Output:
	// cool-down of api for 5m0s
	// 429
	// true
	// 5m0s
}

// Rules from a file.
func Example_rulefile() {
	client := exampleClient()
	defer client.Close()
	rules, err := rulefile.Parse([]byte(`
rules:
  - name: everything
    limits:
      - {name: "api:{host}", rate: 20/s, min_gap: 40ms}
    detectors: [http]
`))
	if err != nil {
		panic(err)
	}
	_, err = httplimit.New(client, httplimit.WithRules(rules...))
	fmt.Println(len(rules), err)

	_, err = rulefile.Parse([]byte("rules:\n  - name: everything\n    limits:\n      - {name: api, permits: 20, intervall: 1s}\n"))
	fmt.Println(strings.Split(err.Error(), ";")[0])
	// Output:
	// 1 <nil>
	// rulefile: line 4: rules[0].limits[0].intervall: unknown field
}

// An SDK that sends again after every error returns the context's alone. ContextWithReason says why nothing was sent.
func ExampleContextWithReason() {
	client := exampleClient()
	defer client.Close()
	server := platform()
	defer server.Close()
	transport, err := httplimit.New(client, httplimit.WithRules(httplimit.Rule{
		Limits: []httplimit.Limit{{Name: "sdk", Rate: ratelimiter.Rate{Permits: 1, Interval: time.Hour}}},
	}))
	if err != nil {
		panic(err)
	}
	httpClient := &http.Client{Transport: transport}
	sdk := func(ctx context.Context) error {
		for ctx.Err() == nil {
			req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
			if resp, err := httpClient.Do(req); err == nil {
				return resp.Body.Close()
			}
		}
		return ctx.Err()
	}
	for _, timeout := range []time.Duration{time.Minute, time.Second} {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		explained, explain := httplimit.ContextWithReason(ctx)
		err := explain(sdk(explained))
		cancel()
		var rejected *httplimit.Error
		if errors.As(err, &rejected) {
			fmt.Println("not sent, because of", rejected.Limiter, rejected.Wait > 59*time.Minute)
			continue
		}
		fmt.Println("sent", err)
	}
	// Output:
	// sent <nil>
	// not sent, because of sdk true
}

// A platform that says with status 200 that it throttles.
func ExampleSignature() {
	signature := httplimit.Signature{
		Status: []int{http.StatusOK},
		JSON:   map[string]string{"error.code": "Throttling*", "error.type": "!billing"},
		Wait:   2 * time.Second,
	}
	now := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	verdict := signature.Detect(&httplimit.Response{Status: 200, Complete: true, Now: now, Body: []byte(`{"error":{"code":"Throttling.User"}}`)})
	fmt.Println(verdict.Throttled, verdict.Reason, verdict.Until.Sub(now))
	// Output: true Throttling.User 2s
}

// An SDK of Alibaba Cloud or DingTalk sends its requests through a Transport.
func ExampleCaller() {
	client := exampleClient()
	defer client.Close()
	transport, err := httplimit.New(client, httplimit.WithProfile(httplimit.Profile{Name: "ecs", Rules: []httplimit.Rule{{
		Limits: []httplimit.Limit{{Name: "ecs:{host}", Rate: ratelimiter.Rate{Permits: 10, Interval: time.Second}}},
	}}}))
	if err != nil {
		panic(err)
	}
	var config struct { // the SDK's
		HttpClient interface {
			Call(*http.Request, *http.Transport) (*http.Response, error)
		}
	}
	config.HttpClient = httplimit.Caller{Transport: transport}
	spread, requests := transport.DelaySpread("ecs.aliyuncs.com")
	fmt.Println(spread, requests) // nothing was sent yet
	// Output: 0s 0
}

// A platform says in a field of its own how many seconds to wait.
func ExampleDetectorFunc() {
	var detector httplimit.Detector = httplimit.DetectorFunc(func(r *httplimit.Response) httplimit.Verdict {
		seconds, err := strconv.Atoi(r.Header.Get("X-Busy-For"))
		if err != nil {
			return httplimit.Verdict{}
		}
		return httplimit.Verdict{Throttled: true, Until: r.Now.Add(time.Duration(seconds) * time.Second), Scope: httplimit.Scope("tenant")}
	})
	verdict := detector.Detect(&httplimit.Response{Status: 503, Header: http.Header{"X-Busy-For": {"7"}}, Now: time.Unix(0, 0)})
	fmt.Println(verdict.Throttled, verdict.Until.Unix(), verdict.Scope)
	// Output: true 7 tenant
}

// A Signature without fields of the body does not ask for it.
func ExampleBodySelector() {
	var selector httplimit.BodySelector = httplimit.Signature{Status: []int{http.StatusTooManyRequests}}
	fmt.Println(selector.NeedsBody(http.StatusTooManyRequests, nil))
	// Output: false
}

// What to do about an error depends on why nothing was sent.
func ExampleError() {
	explain := func(err error) string {
		var panicked *httplimit.PanicError
		var rejected *httplimit.Error
		switch {
		case errors.As(err, &panicked):
			return "a defect in " + panicked.Func
		case !errors.As(err, &rejected):
			return "sent"
		case rejected.Reason == httplimit.ReasonWait:
			return fmt.Sprintf("come again in %v, or wait for longer than %v", rejected.Wait, rejected.MaxWait)
		}
		return string(rejected.Reason)
	}
	fmt.Println(explain(&httplimit.Error{Reason: httplimit.ReasonWait, Wait: 9 * time.Second, MaxWait: time.Second}))
	// Output: come again in 9s, or wait for longer than 1s
}

// A program that takes rules from its user shows what is wrong with which field.
func ExampleFieldError() {
	err := httplimit.CheckRules([]httplimit.Rule{{Limits: []httplimit.Limit{{Name: "api", Rate: ratelimiter.Rate{Permits: 10}}}}})
	var wrong *httplimit.FieldError
	if errors.As(err, &wrong) {
		fmt.Println(wrong.Field)
	}
	// Output: rules[0].limits[0].interval
}

// A platform's own form of a rejection lets its SDK sleep for as long as the limiter says.
func ExampleRejectionForm() {
	var form httplimit.RejectionForm = func(e *httplimit.Error) (http.Header, []byte) {
		return http.Header{"Content-Type": {"application/json"}}, fmt.Appendf(nil, `{"retry_after":%g}`, e.Wait.Seconds())
	}
	_, body := form(&httplimit.Error{Wait: 1500 * time.Millisecond})
	fmt.Println(string(body))
	// Output: {"retry_after":1.5}
}
