// SPDX-License-Identifier: Apache-2.0

// Package httplimit keeps the HTTP requests that a fleet sends within limits that it shares through Redis.
//
// A [Transport] wraps any [http.RoundTripper]. Before it sends a request, it takes permits from every limiter that
// the request's [Rule]s name, all or none, and waits for them as long as the request's context allows. It shows the
// platform's response to [Detector]s. If one of them finds that the platform throttled the call, the limiters of that
// host or platform cool down: nobody in the fleet, Redisson in Java included, gets a permit before the penalty ends.
//
//	transport, err := httplimit.New(client, httplimit.WithRules(httplimit.Rule{
//		Match:  httplimit.Match{Patterns: []string{"POST api.example.com/messages/"}},
//		Limits: []httplimit.Limit{{Name: "example:messages", Rate: ratelimiter.Rate{Permits: 20, Interval: time.Second}}},
//	}))
//	httpClient := &http.Client{Transport: transport}
//
// Pass the httpClient to anything that accepts an http.Client, as most SDKs do. A rejected request was not sent, and
// its error is an [*Error] for which errors.Is(err, [ErrRejected]) holds. The errors of http.Client contain the URL
// with any secrets in it: pass them through [Redact] before you log them.
//
// Package platform has rules for some platforms and detectors of their rejections, and package rulefile reads rules
// from a YAML or JSON file. Package inbound is for the requests that a server receives. All three are separate
// packages, so this one links nothing but what the limiter itself needs.
package httplimit
