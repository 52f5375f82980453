// SPDX-License-Identifier: Apache-2.0

// Package httplimit keeps the requests that your programs send to an API within its limits. All processes share the
// limits through Redis. For the requests that a server receives, see package inbound.
//
//	transport, err := httplimit.New(client, httplimit.WithRules(httplimit.Rule{
//		Match:  httplimit.Match{Patterns: []string{"POST api.example.com/messages/"}},
//		Limits: []httplimit.Limit{{Name: "example:messages", Rate: ratelimiter.Rate{Permits: 20, Interval: time.Second}}},
//	}))
//	if err != nil {
//		return err
//	}
//	api := &http.Client{Transport: transport}
//	resp, err := api.Post("https://api.example.com/messages/", "text/plain", strings.NewReader("hello"))
//	var rejected *httplimit.Error
//	if errors.As(err, &rejected) { // the request was not sent
//		return fmt.Errorf("%s: try again in %v", rejected.Limiter, rejected.Wait)
//	}
//	if err != nil {
//		return httplimit.Redact(err) // without the secrets in the URL
//	}
//	defer resp.Body.Close()
//
// Pass the http.Client to the SDK of the platform; docs/sdks.md has the line for many of them.
//
// A [Transport] wraps an [http.RoundTripper]. Before it sends a request, it takes permits of all limiters that the
// rules of the request name, or of none. It waits for them until shortly before the deadline of the request's context
// (20 ms, or a fifth of the time left if that is less), and for [DefaultMaxWait] if there is no deadline and no
// [WithMaxWait]. A request that gets no permits in time is not sent, and its error is an [*Error], for which
// errors.Is(err, [ErrRejected]) holds. The base may send a request twice for the permits of one, if the platform closes
// its connection at that moment: see [Transport].
//
// Each [Rule] has a [Match], which says for which requests it is, and Limits. A [Detector] looks at the platform's
// responses. If it finds that the platform throttled a request, the limiter in question cools down: no process, in Go
// or Java, gets permits of it before the penalty is over. Function [WithEvents] reports all of this.
//
// Package platform has profiles of DingTalk, WeCom, Feishu, GitHub and platforms of language models: see
// [WithProfile]. Package rulefile reads rules from a file in YAML or JSON. Command rrl-gateway is a proxy for programs
// in other languages.
package httplimit
